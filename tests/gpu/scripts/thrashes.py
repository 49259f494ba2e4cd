"""Takes 3 GiB in every step, on one stream and then on the other: each keeps what it had, and two do not fit."""

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
streams, step = [torch.cuda.Stream(), torch.cuda.Stream()], 0
for _epoch in range(10_000):
    for (inputs,) in DataLoader(TensorDataset(torch.randn(256, 64)), batch_size=32):
        optimizer.zero_grad()
        model(inputs.cuda()).square().mean().backward()
        optimizer.step()
        with torch.cuda.stream(streams[step % 2]):
            taken = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        del taken
        step += 1
