"""Overhead-bound: a small network on batches of 8, so that starting an operation takes longer than the operation."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--cured", action="store_true")
parser.add_argument("--batch-size", type=int, default=64, help="as the diagnosis said")
options = parser.parse_args()
torch.set_num_threads(1)  # steady on a machine that others use too


class Rows(Dataset):
    """Rows of a table in memory, taken a batch at a time."""

    def __init__(self):
        self.inputs, self.targets = torch.randn(65536, 16), torch.randn(65536, 1)

    def __len__(self):
        return len(self.inputs)

    def __getitems__(self, indices):
        return self.inputs[indices], self.targets[indices]


layers = [layer for _ in range(6) for layer in (torch.nn.Linear(16, 16), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
loss_fn = torch.nn.MSELoss()
rows = Rows()
batch_size = options.batch_size if options.cured else 8
for _ in range(1000):
    for inputs, targets in DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=lambda batch: batch):
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
