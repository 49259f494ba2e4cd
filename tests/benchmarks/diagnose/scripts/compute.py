"""Compute-bound: the arrays came as float64, and so the model was made to fit."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--cured", action="store_true")
options = parser.parse_args()
torch.set_num_threads(1)  # steady on a machine that others use too

dtype = torch.float32 if options.cured else torch.float64
data = TensorDataset(torch.randn(4096, 512, dtype=dtype), torch.randint(0, 10, (4096,)))
model = torch.nn.Sequential(
    torch.nn.Linear(512, 1024),
    torch.nn.ReLU(),
    torch.nn.Linear(1024, 1024),
    torch.nn.ReLU(),
    torch.nn.Linear(1024, 10),
).to(dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_fn = torch.nn.CrossEntropyLoss()
for _ in range(1000):
    for inputs, targets in DataLoader(data, batch_size=256, shuffle=True):
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
