"""`python -m tests.benchmarks.keras_seam`: what a trial adds to a call of Keras' training function.

The real session of a trial, with its meter in the window, around a function in place of an engine. Plain calls and
calls through the seam take turns; the difference of the fastest blocks is the cost, since load only adds time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.protocol.job import Mode
from autotune.protocol.paths import TrialPaths
from autotune.space.script_settings import script_settings_of
from autotune.trial.keras.keras_trial import KerasTrial
from autotune.trial.meter.durations import PartTimes
from tests.jobs import job_of
from tests.unit.facts import keras_script_facts
from tests.unit.trial.keras import fake_keras

ROUNDS, CALLS = 60, 200
STEP_S = 0.001
ENDLESS = WindowRule(half_width_ratio=1e-9, min_blocks=10**6, min_window_s=1e6, max_window_s=1e7, min_block_s=0.02)


def batches() -> Iterator[Any]:
    """The same batch without end."""
    batch = (numpy.zeros((32, 20), "float32"), numpy.zeros((32, 1), "float32"))
    while True:
        yield batch


def step(iterator: Iterator[Any]) -> dict[str, float]:
    """A step of 1 ms."""
    next(iterator)
    end = time.perf_counter() + STEP_S
    while time.perf_counter() < end:
        pass
    return {"loss": 1.0}


def seconds_per_call(call: Callable[[], Any]) -> float:
    """Mean of one block of calls."""
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS


def session(folder: Path) -> KerasTrial:
    """A trial of a script over arrays."""
    facts = replace(keras_script_facts(), step_s=STEP_S)
    own = script_settings_of(facts)
    job = job_of(
        mode=Mode.TRIAL, settings=own, script_settings=own, facts=facts, window=ENDLESS, command=("python", "train.py"),
        cwd="/", cap_bytes=1 << 40, start_limit_s=1e6, total_limit_s=1e6,
    )  # fmt: skip
    paths = TrialPaths(folder)
    paths.progress.parent.mkdir(parents=True, exist_ok=True)
    now = time.monotonic()
    return KerasTrial(job, paths, PartTimes(asked_at=now, ready_at=now, attached_at=now))


def main() -> None:
    """Prints the cost of the seam for a step, in microseconds."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        keras = fake_keras.install(patch)
        trial = session(Path(folder))
        trial.imported("keras")
        model = keras.Model()
        model.compile("sgd", "mse")
        iterator = batches()
        trial.seams.depth = 1
        trial.before_fit(model, {"x": numpy.zeros((960, 20)), "y": numpy.zeros((960, 1))})
        plain, seam = [], []
        for number in range(ROUNDS + 5):
            one = seconds_per_call(lambda: step(iterator))
            other = seconds_per_call(lambda: trial.seams.train(model, step, (iterator,)))
            if number >= 5:
                plain.append(one)
                seam.append(other)
        meter = trial._meter
        print(
            f"phase {meter.phase.value if meter is not None else 'none'}; a step of {1e6 * min(plain):.1f} us plain, "
            f"{1e6 * min(seam):.1f} us in a trial: the seam costs {1e6 * (min(seam) - min(plain)):.1f} us"
        )


if __name__ == "__main__":
    main()
