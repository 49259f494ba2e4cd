"""A training loop that, as a trial, takes turns with the same loop beneath the trial's seams, and says what they cost.

The loop beneath calls what the seams' wrappers call: torch's own functions, the same model and the same optimizer. So
nothing is put on and taken off, which would cost the interpreter its caches, and turns can be as short as a few
micro-steps: what changes on a shared machine from one tenth of a second to the next is in both alike.

The two are not written alike, which by itself costs a few microseconds: outside of a trial, where nothing is attached,
the same turns say how many.

With `--by-hand` the loop beneath does itself what the seams do for the other: an autocast region per micro-batch, and
two micro-batches per step.
"""

import argparse
import copy
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator

import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset, dataloader

TURN_STEPS = 8
"""Micro-steps of a turn: whole steps with either accumulation, and an epoch is a multiple of it."""
QUADS = 16
"""Of turns, with and without and without and with, in a group: at half a millisecond a step it still holds two of the
meter's blocks, so that every group has its share of what their ends cost."""
REGIONS = 2000
WARM_UP_S = 3.0
"""Of metered steps: until the trial's own warm-up is through, and its window runs."""

parser = argparse.ArgumentParser()
parser.add_argument("--groups", type=int, default=24, help="of turns; each gives a difference")
parser.add_argument("--spin-s", type=float, default=0.0, help="CPU time of a step beside that of its small model")
parser.add_argument("--by-hand", action="store_true", help="autocast and accumulate beneath the seams")
options = parser.parse_args()

SPACE, SPACE_TOO = bytearray(1 << 16), bytearray(1 << 16)


class Endless(Sampler[int]):
    """Indices without an end, as a trial's own sampler gives them."""

    def __init__(self, num: int) -> None:
        self.num = num

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(self.num))

    def __len__(self) -> int:
        return self.num


def beneath(function):
    """What autotune's wrappers call."""
    while "autotune/trial" in getattr(getattr(function, "__code__", None), "co_filename", "").replace(os.sep, "/"):
        function = function.__wrapped__
    return function


def seams(optimizer):
    """The places where wrappers lie, by name."""
    places = [
        (dataloader._BaseDataLoaderIter, "__next__"),
        (torch.autograd, "backward"),
        (type(optimizer), "step"),
        (torch.optim.Optimizer, "zero_grad"),
        (torch.nn.Module, "__call__"),
    ]
    return [name for owner, name in places if beneath(getattr(owner, name)) is not getattr(owner, name)]


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


def loop_above(loader, model, optimizer) -> Callable[[], float]:
    """A turn of the script as everybody writes it, with the seams: gives its CPU time."""
    spin_s, cross_entropy = options.spin_s, torch.nn.functional.cross_entropy
    iterator = iter(loader)

    def turn():
        began = time.thread_time()
        for _ in range(TURN_STEPS):
            x, y = next(iterator)
            optimizer.zero_grad()
            spin(spin_s)
            cross_entropy(model(x), y).backward()
            optimizer.step()
        return time.thread_time() - began

    return turn


def loop_beneath(loader, model, optimizer) -> Callable[[], float]:
    """A turn of the same beneath the seams: another loader like that, the same parameters."""
    spin_s, cross_entropy = options.spin_s, torch.nn.functional.cross_entropy
    next_batch, backward = beneath(dataloader._BaseDataLoaderIter.__next__), beneath(torch.autograd.backward)
    step, zero_grad = beneath(type(optimizer).step), beneath(torch.optim.Optimizer.zero_grad)
    # Its copy has the same parts, and not the wrapper that a root carries.
    model = copy.copy(model)
    assert model._compiled_call_impl is None
    iterator, num_taken = iter(loader), 0

    def turn():
        began = time.thread_time()
        for _ in range(TURN_STEPS):
            x, y = next_batch(iterator)
            zero_grad(optimizer)
            spin(spin_s)
            # As `loss.backward()` calls it.
            backward(cross_entropy(model(x), y), None, None, False, inputs=None)
            step(optimizer)
        return time.thread_time() - began

    def turn_by_hand():
        began = time.thread_time()
        for number in range(TURN_STEPS):
            x, y = next_batch(iterator)
            spin(spin_s)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = cross_entropy(model(x), y)
            backward(loss / 2, None, None, False, inputs=None)
            if number % 2 == 1:
                step(optimizer)
                zero_grad(optimizer)
        return time.thread_time() - began

    def next_turn():
        nonlocal iterator, num_taken
        if num_taken == len(loader):
            iterator, num_taken = iter(loader), 0
        num_taken += TURN_STEPS
        return turn_by_hand() if options.by_hand else turn()

    return next_turn


def main():
    torch.set_num_threads(1)
    size = 16
    model = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(4096, size), torch.randint(4, (4096,)))
    is_trial = "AUTOTUNE_TRIAL" in os.environ
    above = loop_above(DataLoader(data, 32, sampler=None if is_trial else Endless(len(data))), model, optimizer)
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        above()
    beside = DataLoader(data, batch_size=16 if options.by_hand else 32)
    below = loop_beneath(beside, model, optimizer)
    differences, plain = [], []
    for _ in range(options.groups):
        above_s = below_s = 0.0
        for _ in range(QUADS):
            above_s += above()
            below_s += below() + below()
            above_s += above()
        num_steps = 2 * QUADS * TURN_STEPS
        differences.append((above_s - below_s) / num_steps)
        plain.append(below_s / num_steps)
    said = {"differences": differences, "plain": plain, "region": region_s(), "seams": seams(optimizer)}
    print(json.dumps(said), flush=True)
    os._exit(0)


main()
