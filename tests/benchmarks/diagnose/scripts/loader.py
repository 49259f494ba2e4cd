"""Loader-bound: every sample comes from slow storage, and one process fetches them one after the other."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--cured", action="store_true")
parser.add_argument("--workers", type=int, default=4, help="as the diagnosis said")
options = parser.parse_args()
torch.set_num_threads(1)  # steady on a machine that others use too


class Remote(Dataset):
    """Samples of a store that answers after a millisecond, never the same twice, so that none can be kept."""

    def __len__(self):
        return 20000

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.randn(256), index % 10


model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_fn = torch.nn.CrossEntropyLoss()
loader = DataLoader(Remote(), batch_size=32, shuffle=True, num_workers=options.workers if options.cured else 0)
for _ in range(100):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
