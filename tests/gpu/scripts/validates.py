"""Trains on little memory; validates after every epoch with a batch of 2 GiB."""

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(10_000):
    for (inputs,) in DataLoader(TensorDataset(torch.randn(96, 64)), batch_size=32):
        optimizer.zero_grad()
        model(inputs.cuda()).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        held_out = torch.zeros(1 << 23, 64, device="cuda")
        print("validated", model(held_out).mean().item(), flush=True)
        del held_out
