"""Trains on two ranks by `torch.multiprocessing.spawn`; the second fails after so many steps, or never: `forever`.

Each rank has two persistent workers.
"""

import os
import sys
import tempfile
import time

import torch
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

NUM_RANKS = 2


def train(rank, num_steps, meeting):
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=NUM_RANKS)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(1024, 8), torch.randn(1024, 1))
    sampler = DistributedSampler(data, NUM_RANKS, rank)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=2, persistent_workers=True)
    number = 0
    for _ in range(1000):
        for x, y in loader:
            number += 1
            if number > num_steps and rank == 1:
                print(f"failed at {time.monotonic()}", flush=True)
                raise RuntimeError("too many steps")
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    num_steps = float("inf") if sys.argv[1] == "forever" else int(sys.argv[1])
    meeting = f"file://{os.path.join(tempfile.mkdtemp(), 'meeting')}"
    torch.multiprocessing.spawn(train, (num_steps, meeting), nprocs=NUM_RANKS)
