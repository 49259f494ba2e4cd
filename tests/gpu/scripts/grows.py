"""Trains, and holds 64 MiB more of the device after every step, for ever."""

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
held = []
for _epoch in range(10_000):
    for (inputs,) in DataLoader(TensorDataset(torch.randn(256, 64)), batch_size=32):
        optimizer.zero_grad()
        model(inputs.cuda()).square().mean().backward()
        optimizer.step()
        held.append(torch.zeros(64 << 20, dtype=torch.uint8, device="cuda"))
