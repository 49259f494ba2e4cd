"""An ordinary training loop that, as a trial, switches its seams off and on, and says what they cost.

With `--by-hand` it does itself, while they are off, what they do for it: an autocast region per micro-batch, and two
micro-batches per step.
"""

import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader

BLOCK_STEPS = 40
SETTLING_STEPS = 20
"""After a switch, until the interpreter has its caches again."""
REGIONS = 2000
WARM_UP_S = 3.0
"""Of metered steps: until the trial's own warm-up is through, and its window runs."""

parser = argparse.ArgumentParser()
parser.add_argument("--pairs", type=int, default=60, help="pairs of blocks")
parser.add_argument("--spin-s", type=float, default=0.0, help="CPU time of a step beside that of its small model")
parser.add_argument("--by-hand", action="store_true", help="autocast and accumulate while the seams are off")
options = parser.parse_args()

SPACE, SPACE_TOO = bytearray(1 << 16), bytearray(1 << 16)


class Seams:
    """The wrappers on the path of a step, and what is beneath them."""

    def __init__(self, model, optimizer_class):
        self._model, self._call = model, model._compiled_call_impl
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
        if self._call is not None:
            self._model._compiled_call_impl = self._call if is_on else None
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


def region_s():
    """CPU time of an autocast region with nothing in it."""
    began = time.thread_time()
    for _ in range(REGIONS):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pass
    return (time.thread_time() - began) / REGIONS


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

    def micro_step(x, y):
        optimizer.zero_grad()
        spin(options.spin_s)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def micro_step_by_hand(x, y, is_last):
        spin(options.spin_s)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        (loss / 2).backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()

    def steps(num_steps, is_by_hand=False):
        """Seconds of CPU time per micro-step."""
        began = time.thread_time()
        for number in range(num_steps):
            x, y = next(stream)
            if is_by_hand:
                micro_step_by_hand(x, y, number % 2 == 1)
            else:
                micro_step(x, y)
        return (time.thread_time() - began) / num_steps

    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        steps(BLOCK_STEPS)
    seams = Seams(model, type(optimizer))
    differences, plain = [], []
    for number in range(options.pairs):
        pair = {}
        for is_on in (True, False) if number % 2 else (False, True):
            seams.switch(is_on)
            is_by_hand = options.by_hand and not is_on
            steps(SETTLING_STEPS, is_by_hand)
            pair[is_on] = steps(BLOCK_STEPS, is_by_hand)
        differences.append(pair[True] - pair[False])
        plain.append(pair[False])
    seams.switch(True)
    said = {"differences": differences, "plain": plain, "region": region_s(), "seams": seams.names}
    print(json.dumps(said), flush=True)
    os._exit(0)


main()
