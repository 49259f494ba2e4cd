"""A training job whose loader's workers sleep, so that it is known beforehand what its loader and its step can do.

Started as it is, it trains for ever, as the product's trials want it. With `--reference` it says by itself, without any
of autotune, how fast it is: the rate of the first 50 steps after a pause that has filled the loader's queue, and the
rate over many steps without a pause.
"""

import argparse
import json
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 8
NAIVE_STEPS = 50
SETTLING_STEPS = 100

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--prefetch", type=int, default=2)
parser.add_argument("--persistent", action="store_true")
parser.add_argument("--batch-s", type=float, default=0.04, help="mean time to build a batch")
parser.add_argument("--sigma", type=float, default=0.1, help="spread of its logarithm")
parser.add_argument("--compute-s", type=float, default=0.01, help="of a step")
parser.add_argument("--pause-s", type=float, default=0.0, help="after the first step, as for a compilation")
parser.add_argument("--batches", type=int, default=1_000_000, help="of an epoch")
parser.add_argument("--gain", type=float, default=1.0, help="how much faster a loader with `--faster-prefetch` builds")
parser.add_argument("--faster-prefetch", type=int, default=0, help="makes a setting whose worth is known")
parser.add_argument("--reference", type=int, default=0, help="steps of the reference; 0 = train for ever")
parser.add_argument("--epochs", type=int, default=0, help="say how fast so many whole epochs are")
options = parser.parse_args()


class Sleeper(Dataset):
    """Samples that take their time by the batch."""

    def __init__(self) -> None:
        self.batch_s = options.batch_s

    def __len__(self) -> int:
        return BATCH_SIZE * options.batches

    def __getitem__(self, index):
        return torch.full((4,), float(index % 7)), index % 3

    def __getitems__(self, indices):
        time.sleep(self.batch_s * random.lognormvariate(-(options.sigma**2) / 2, options.sigma))
        return [self[index] for index in indices]


torch.set_num_threads(1)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
dataset = Sleeper()
loader = DataLoader(
    dataset,
    batch_size=BATCH_SIZE,
    num_workers=options.workers,
    prefetch_factor=options.prefetch if options.workers else None,
    persistent_workers=options.persistent and options.workers > 0,
)
if loader.prefetch_factor == options.faster_prefetch:
    dataset.batch_s /= options.gain


def train_step(x, y):
    began = time.perf_counter()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    left_s = options.compute_s - (time.perf_counter() - began)
    if left_s > 0:
        time.sleep(left_s)


def train(pause_s, num_steps=None):
    """Trains; gives back when each step ended, the pause after the first one left out."""
    ends = []
    while True:
        for x, y in loader:
            train_step(x, y)
            if pause_s:
                time.sleep(pause_s)
                pause_s = 0.0
            if num_steps is not None:
                ends.append(time.perf_counter())
                if len(ends) > num_steps:
                    return ends


def rate(ends):
    return BATCH_SIZE * (len(ends) - 1) / (ends[-1] - ends[0])


def epochs_rate(num_epochs):
    """Samples per second over whole epochs; the first one, in which everything is new, is left out."""
    for number in range(num_epochs + 1):
        if number == 1:
            began = time.perf_counter()
        for x, y in loader:
            train_step(x, y)
    return BATCH_SIZE * options.batches * num_epochs / (time.perf_counter() - began)


if options.epochs:
    print(json.dumps({"truth": epochs_rate(options.epochs)}))
elif options.reference:
    naive = rate(train(options.pause_s, NAIVE_STEPS))
    truth = rate(train(0.0, SETTLING_STEPS + options.reference)[SETTLING_STEPS:])
    print(json.dumps({"naive": naive, "truth": truth}))
else:
    train(options.pause_s)
