"""What the watch of `autotune run` costs a step: processor time of its calls, with and without, in turns."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from autotune.protocol.job import RunWatch
from autotune.trial.run_watch import Watch
from tests.benchmarks.watch.drifts import SAMPLES_PER_STEP

ROUNDS, STEPS = 40, 400
CALLS = 20_000


def cost_us() -> dict[str, float]:
    """Microseconds of processor time: of a plain step, of the watch within steps with quartiles, and of bare calls.

    Each round runs with and without the watch, in random order; the difference within a round counts. Processor time
    leaves out what other programs take.
    """
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(32, 64), torch.randint(0, 8, (32,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder, "watch.jsonl"))
        asked = RunWatch(log=log, config="/autotune.yaml", samples_per_step=SAMPLES_PER_STEP)
        watch = Watch(asked, write=lambda line: None)

        def watched(inner: Callable[[], None]) -> Callable[[], None]:
            def call() -> None:
                began = time.monotonic()
                watch.waited(time.monotonic() - began)
                inner()
                watch.stepped()

            return call

        plain, extra = _in_turns(step, watched(step), STEPS)
        _, bare = _in_turns(_nothing, watched(_nothing), CALLS)
    low, middle, high = statistics.quantiles(extra, n=4)
    return {"step": plain, "low": low, "watch": middle, "high": high, "bare": statistics.median(bare)}


def _in_turns(plain: Callable[[], None], watched: Callable[[], None], num_calls: int) -> tuple[float, list[float]]:
    """Median time of a plain call, and the differences of the rounds, in microseconds."""
    kinds = {"plain": plain, "watched": watched}
    for call in kinds.values():
        _seconds(call, num_calls)
    rounds = []
    for _ in range(ROUNDS):
        taken = {name: _seconds(kinds[name], num_calls) for name in random.sample(list(kinds), len(kinds))}
        rounds.append({name: seconds / num_calls * 1e6 for name, seconds in taken.items()})
    return statistics.median(each["plain"] for each in rounds), [each["watched"] - each["plain"] for each in rounds]


def _nothing() -> None:
    pass


def _seconds(call: Callable[[], None], num_calls: int) -> float:
    began = time.thread_time()
    for _ in range(num_calls):
        call()
    return time.thread_time() - began
