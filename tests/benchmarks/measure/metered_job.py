"""An ordinary training loop that, as a trial, switches the meter's seams off and on, and says what they cost."""

import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader

BLOCK_STEPS = 40
WARM_UP_S = 3.0
"""Of metered steps: until the trial's own warm-up is through, and its window runs."""

parser = argparse.ArgumentParser()
parser.add_argument("--pairs", type=int, default=60, help="pairs of blocks")
parser.add_argument("--width", type=int, default=0, help="of the model's layers")
options = parser.parse_args()


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
        self._places = [(owner, name, getattr(owner, name), beneath(getattr(owner, name))) for owner, name in places]
        self.names = [name for _, name, outer, inner in self._places if outer is not inner]

    def switch(self, is_on):
        """Puts the wrappers in place, or takes them off."""
        for owner, name, outer, inner in self._places:
            setattr(owner, name, outer if is_on else inner)


def beneath(function):
    """What autotune's wrappers call."""
    while "autotune/trial" in getattr(getattr(function, "__code__", None), "co_filename", "").replace(os.sep, "/"):
        function = function.__wrapped__
    return function


def main():
    torch.set_num_threads(1)
    size = options.width or 16
    layers = [
        torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU()) for _ in range(4 if options.width else 1)
    ]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(size, 4))
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
            steps(4)
            pair[is_on] = steps(BLOCK_STEPS)
        differences.append(pair[True] - pair[False])
        plain.append(pair[False])
    seams.switch(True)
    print(json.dumps({"differences": differences, "plain": plain, "seams": seams.names}), flush=True)
    os._exit(0)


main()
