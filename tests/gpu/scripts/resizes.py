"""A convolution network on images of another size every tenth step; cuDNN searches kernels for each size."""

import torch
from torch.utils.data import DataLoader, TensorDataset

SIZES = (96, 64, 128, 160, 80, 112, 144)

torch.backends.cudnn.benchmark = True
model = torch.nn.Sequential(
    torch.nn.Conv2d(16, 128, 3),
    torch.nn.ReLU(),
    torch.nn.Conv2d(128, 128, 5),
    torch.nn.ReLU(),
    torch.nn.Conv2d(128, 64, 3, stride=2),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(64, 10),
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
images, labels = torch.randn(512, 16, 64, 64), torch.randint(0, 10, (512,))
step = 0
for _epoch in range(10_000):
    for inputs, targets in DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True):
        size = SIZES[step // 10 % len(SIZES)]
        resized = torch.nn.functional.interpolate(inputs.to("cuda"), size=(size, size))
        loss = torch.nn.functional.cross_entropy(model(resized), targets.to("cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
