"""Trains from eight persistent workers and fails after so many steps, as its argument says, or never: `forever`.

Its exit waits five seconds for every worker, as torch's own does where they are persistent and pinned.
"""

import atexit
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

num_steps = float("inf") if sys.argv[1] == "forever" else int(sys.argv[1])
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(1024, 8), torch.randn(1024, 1))
loader = DataLoader(data, batch_size=8, num_workers=8, persistent_workers=True)
number = 0
for _ in range(1000):
    for x, y in loader:
        number += 1
        if number == 1:
            for worker in loader._iterator._workers:
                atexit.register(worker.join, 5.0)
        if number > num_steps:
            print(f"failed at {time.monotonic()}", flush=True)
            raise RuntimeError("too many steps")
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
