"""Trains on little memory; validates after every epoch of three steps with a batch of 256 MiB."""

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
points = TensorDataset(torch.randn(96, 64))
for _epoch in range(10_000):
    for (inputs,) in DataLoader(points, batch_size=32):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        held_out = torch.ones(1 << 20, 64)
        print("validated", torch.nn.Identity()(model(held_out) @ torch.zeros(8, 64)).mean().item(), flush=True)
        del held_out
