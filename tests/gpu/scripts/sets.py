"""A convolution network whose script sets kernels and formats itself, as scripts for speed and for repeatability do."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

own = sys.argv[1]
if own == "tf32":
    torch.set_float32_matmul_precision("high")
elif own == "new-tf32" and hasattr(torch.backends.cuda.matmul, "fp32_precision"):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
elif own == "new-tf32":
    torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.benchmark = own == "benchmark"
model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3), torch.nn.Flatten(), torch.nn.Linear(28800, 10)).cuda()
if own == "channels-last":
    model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
images = TensorDataset(torch.randn(512, 16, 32, 32))
while True:
    for (inputs,) in DataLoader(images, batch_size=32):
        loss = model(inputs.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
