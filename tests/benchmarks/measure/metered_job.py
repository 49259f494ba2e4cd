"""An ordinary training loop that, as a trial, switches the meter's seams off and on, and says what they cost."""

import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader

BLOCK_STEPS = 40
SETTLING_STEPS = 20
"""After a switch, until the interpreter has its caches again."""
WARM_UP_S = 3.0
"""Of metered steps: until the trial's own warm-up is through, and its window runs."""

parser = argparse.ArgumentParser()
parser.add_argument("--pairs", type=int, default=60, help="pairs of blocks")
parser.add_argument("--spin-s", type=float, default=0.0, help="CPU time of a step beside that of its small model")
options = parser.parse_args()

SPACE, SPACE_TOO = bytearray(1 << 16), bytearray(1 << 16)


class Seams:
    """The wrappers on the path of a step, and what is beneath them."""

    def __init__(self, optimizer_class):
        places = [
            (dataloader._BaseDataLoaderIter, "__next__"),
            (torch.autograd, "backward"),
            (optimizer_class, "step"),
            (torch.optim.Optimizer, "zero_grad"),
            (torch.nn.Module, "__call__"),
        ]
        places = [(owner, name, getattr(owner, name), beneath(getattr(owner, name))) for owner, name in places]
        # What no seam lies over stays untouched: a class that is written to costs the interpreter its caches.
        self._places = [place for place in places if place[2] is not place[3]]
        self.names = [name for _, name, _, _ in self._places]

    def switch(self, is_on):
        """Puts the wrappers in place, or takes them off."""
        for owner, name, outer, inner in self._places:
            setattr(owner, name, outer if is_on else inner)


def beneath(function):
    """What autotune's wrappers call."""
    while "autotune/trial" in getattr(getattr(function, "__code__", None), "co_filename", "").replace(os.sep, "/"):
        function = function.__wrapped__
    return function


def spin(seconds):
    """Takes so much CPU time, to a few microseconds, and much of the caches with it, as a larger model does.

    A larger model itself takes a time that varies by a multiple of what is looked for.
    """
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        SPACE[:] = SPACE_TOO


def main():
    torch.set_num_threads(1)
    size = 16
    model = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(4096, size), torch.randint(4, (4096,))), batch_size=32)

    def batches():
        while True:
            yield from loader

    stream = batches()

    def steps(num_steps):
        """Seconds of CPU time per step."""
        began = time.thread_time()
        for _ in range(num_steps):
            x, y = next(stream)
            optimizer.zero_grad()
            spin(options.spin_s)
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return (time.thread_time() - began) / num_steps

    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        steps(BLOCK_STEPS)
    seams = Seams(type(optimizer))
    differences, plain = [], []
    for number in range(options.pairs):
        pair = {}
        for is_on in (True, False) if number % 2 else (False, True):
            seams.switch(is_on)
            steps(SETTLING_STEPS)
            pair[is_on] = steps(BLOCK_STEPS)
        differences.append(pair[True] - pair[False])
        plain.append(pair[False])
    seams.switch(True)
    print(json.dumps({"differences": differences, "plain": plain, "seams": seams.names}), flush=True)
    os._exit(0)


main()
