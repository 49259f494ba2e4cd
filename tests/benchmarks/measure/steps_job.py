"""A training loop whose step takes as long as its model's width and depth make it, on a CPU or a GPU.

Started as it is, it trains for ever, as the product's trials want it. With `--reference S` it says by itself, without
any of autotune, how many samples per second it trains, over so many seconds after as many to settle. The device is
waited for at both ends only, as nearly every script leaves the host ahead of its GPU.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 8
STEPS_BETWEEN_LOOKS = 20
"""Steps between two looks at the clock."""

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--depth", type=int, default=2, help="layers")
parser.add_argument("--rows", type=int, default=8, help="rows that the model computes per batch")
parser.add_argument("--reference", type=float, default=0.0, help="seconds of the reference; 0 = train for ever")
options = parser.parse_args()


def wait():
    if options.device != "cpu":
        torch.cuda.synchronize()


def steps():
    """Trains; gives back after each step."""
    layers = [torch.nn.Linear(options.width, options.width) for _ in range(options.depth)]
    model = torch.nn.Sequential(*layers).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, fused=True)
    loader = DataLoader(TensorDataset(torch.randn(80_000, options.width)), BATCH_SIZE)
    while True:
        for (x,) in loader:
            rows = x.to(options.device).repeat(options.rows // BATCH_SIZE, 1)
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()
            yield


def rate(training, seconds):
    """Samples per second of the next steps, for so long."""
    wait()
    began, num_steps = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        for _ in range(STEPS_BETWEEN_LOOKS):
            next(training)
        num_steps += STEPS_BETWEEN_LOOKS
    wait()
    return BATCH_SIZE * num_steps / (time.perf_counter() - began)


if options.device == "cpu":
    torch.set_num_threads(1)
training = steps()
if options.reference:
    rate(training, options.reference)
    print(json.dumps({"truth": rate(training, options.reference), "batch_size": BATCH_SIZE}))
else:
    for _ in training:
        pass
