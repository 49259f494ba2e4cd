"""A training loop that, as a trial, takes turns with the same loop beneath the trial's seams, and says what they cost.

The loop beneath is the same code over twins: of the loader's iterator, the optimizer and `loss.backward`, whose classes
and names lead to torch's own functions, past the wrappers. So nothing is put on and taken off, which would cost the
interpreter its caches, and turns can be as short as a few micro-steps: what changes on a shared machine from one tenth
of a second to the next is in both alike. Outside of a trial, where nothing is attached, the two must take the same.

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
from pathlib import Path
from types import FunctionType, SimpleNamespace

import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset, dataloader

from autotune.protocol.paths import TrialPaths
from autotune.runner.reports import read_progress

LEAD_IN_STEPS = 2
"""Micro-steps at the begin of a turn that are not timed: a whole step with either accumulation. What only one of the
loops uses has left the caches while the other one ran, which happens to no script."""
TURN_STEPS = 4
"""Micro-steps of a turn that are timed; few, so that what the neighbours do is in both loops alike."""
GROUP_S = 0.1
"""CPU time with the seams in a group of turns: two of the meter's blocks, so that every group has its share of what
their ends cost."""
REGIONS = 2000
WARM_UP_S = 3.0
"""Of metered steps, at least; at most until the trial's own warm-up is through, and its window runs."""
MAX_WARM_UP_S = 60.0

parser = argparse.ArgumentParser()
parser.add_argument("--groups", type=int, default=24, help="of turns; each gives a difference")
parser.add_argument("--spin-s", type=float, default=0.0, help="CPU time of a step beside that of its small model")
parser.add_argument("--device", default="cpu")
parser.add_argument("--by-hand", action="store_true", help="autocast and accumulate beneath the seams")
options = parser.parse_args()

SPACE, SPACE_TOO = bytearray(1 << 16), bytearray(1 << 16)


class Endless(Sampler[int]):
    """Indices without an end, as the trial's own sampler gives them."""

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
        with torch.autocast(options.device, dtype=torch.bfloat16):
            pass
    return (time.thread_time() - began) / REGIONS


def twin(original, *names):
    """The same object, of a class of its own in which these names are what lies beneath the seams."""
    cls = type(original)
    same = object.__new__(type(cls.__name__, (cls,), {name: beneath(getattr(cls, name)) for name in names}))
    vars(same).update(vars(original))
    return same


def backward_beneath() -> Callable[[torch.Tensor], None]:
    """`Tensor.backward`, its very code, with what lies beneath the seam where it says `torch.autograd.backward`."""
    names = SimpleNamespace(autograd=SimpleNamespace(backward=beneath(torch.autograd.backward)))
    known = torch.Tensor.backward
    return FunctionType(known.__code__, {**known.__globals__, "torch": names}, "backward", known.__defaults__)


def turns_of(steps) -> Callable[[], float]:
    """Turns of a loop, given by what makes so many of its micro-steps: each gives its CPU time."""

    def turn():
        steps(LEAD_IN_STEPS)
        began = time.thread_time()
        steps(TURN_STEPS)
        return time.thread_time() - began

    return turn


def loop_over(iterator, model, optimizer, backward) -> Callable[[int], None]:
    """The script as everybody writes it: makes so many micro-steps."""
    spin_s, device, cross_entropy = options.spin_s, options.device, torch.nn.functional.cross_entropy

    def steps(num_micro_steps):
        for _ in range(num_micro_steps):
            x, y = next(iterator)
            optimizer.zero_grad()
            spin(spin_s)
            backward(cross_entropy(model(x.to(device)), y.to(device)))
            optimizer.step()

    return steps


def loop_by_hand(iterator, model, optimizer, backward) -> Callable[[int], None]:
    """The same with a region and two micro-batches per step, as who knows of them writes it."""
    spin_s, device, cross_entropy = options.spin_s, options.device, torch.nn.functional.cross_entropy

    def steps(num_micro_steps):
        for number in range(num_micro_steps):
            x, y = next(iterator)
            spin(spin_s)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = cross_entropy(model(x.to(device)), y.to(device))
            backward(loss / 2)
            if number % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()

    return steps


def is_warm() -> bool:
    """Whether the trial's window runs; outside of a trial there is nothing to wait for."""
    folder = os.environ.get("AUTOTUNE_TRIAL")
    return folder is None or read_progress(TrialPaths(Path(folder))).in_window


def warm_up(turn):
    """Lets the trial come to its window."""
    began = time.monotonic()
    while time.monotonic() < began + WARM_UP_S or not is_warm():
        assert time.monotonic() < began + MAX_WARM_UP_S, "the trial does not come to its window"
        turn()


def group(above, below) -> tuple[float, float]:
    """CPU times with and without the seams per micro-step, by turns with and without and without and with."""
    above_s, below_s, num_steps = 0.0, 0.0, 0
    while above_s < GROUP_S:
        above_s += above()
        below_s += below() + below()
        above_s += above()
        num_steps += 2 * TURN_STEPS
    return above_s / num_steps, below_s / num_steps


def main():
    torch.set_num_threads(1)
    size = 16
    model = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, 4)).to(
        options.device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(4096, size), torch.randint(4, (4096,)))
    is_trial = "AUTOTUNE_TRIAL" in os.environ
    loader = DataLoader(data, 32, sampler=None if is_trial else Endless(len(data)))
    above = turns_of(loop_over(iter(loader), model, optimizer, torch.Tensor.backward))
    warm_up(above)
    beside = DataLoader(data, 16 if options.by_hand else 32, sampler=Endless(len(data)))
    # A model's copy has the same parts, and not the wrapper that a root carries.
    bare_model = copy.copy(model)
    assert bare_model._compiled_call_impl is None
    bare_optimizer = twin(optimizer, "step", "zero_grad")
    loop = loop_by_hand if options.by_hand else loop_over
    below = turns_of(loop(twin(iter(beside), "__next__"), bare_model, bare_optimizer, backward_beneath()))
    groups = [group(above, below) for _ in range(options.groups)]
    said = {
        "differences": [above_s - below_s for above_s, below_s in groups],
        "plain": [below_s for _, below_s in groups],
        "region": region_s(),
        "seams": seams(optimizer),
    }
    print(json.dumps(said), flush=True)
    os._exit(0)


main()
