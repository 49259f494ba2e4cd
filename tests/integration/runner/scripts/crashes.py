"""Trains from persistent workers, and fails after a while in the way that its argument names.

Its exit waits for workers that nobody tells to end, as torch's own does where they are persistent and pinned.
"""

import atexit
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

NUM_STEPS = 40
how = sys.argv[1] if len(sys.argv) > 1 else ""
number = 0


class Rows(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if how == "worker" and index > 300:
            raise LookupError("no such row")
        return torch.randn(8), torch.zeros(1)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x):
        assert how != "forward" or number < NUM_STEPS, "too many steps"
        return self.layer(x)


def wait_for_workers():
    print("waits for its workers")
    time.sleep(600)


def fail():
    if how == "step":
        raise ValueError("too many steps")
    if how == "exit":
        sys.exit(3)
    if how == "own hook":
        sys.excepthook = lambda *_: print("a fine traceback")
        raise ValueError("too many steps")
    if how == "thread":
        threading.Thread(target=time.sleep, args=(600,)).start()
        raise ValueError("too many steps")


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Rows(), batch_size=4, num_workers=2, persistent_workers=True)
atexit.register(wait_for_workers)
for _ in range(1000):
    for x, y in loader:
        number += 1
        if number > NUM_STEPS:
            fail()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
