"""The rate of public scripts under their own settings: the script alone, a trial and a final, in turns.

    python -m tests.street.own_rates --checkouts FOLDER --work FOLDER --device gpu --only vae --only tutorial_cnn

A trial that is right has the rate of the script alone, up to the noise of the machine.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.measure.trials import trials_of
from tests.street.__main__ import choice
from tests.street.runner import Place, Plan
from tests.street.script import DEVICES, Device, Script
from tests.street.watch import Limits, watch

LIMITS = Limits(settle_s=3.0, window_s=12.0)
WAYS = ("script", "trial", "final")

Turn = dict[str, float]
"""Samples per second by the way of measuring."""


def main() -> int:
    """Measures the rows, and prints a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.street.own_rates", description=__doc__)
    parser.add_argument("--checkouts", type=Path, required=True, help="folder of checkouts, as OWNER+NAME")
    parser.add_argument("--work", type=Path, required=True, help="folder for copies, data and logs")
    parser.add_argument("--only", action="append", required=True, help="a row by name; may be repeated")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--gpus", default="", help="CUDA_VISIBLE_DEVICES of all commands")
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    plan = Plan(checkouts=asked.checkouts.resolve(), work=asked.work.resolve(), gpus=asked.gpus)
    print("| script | alone, per second | trial / alone | final / alone |\n| --- | --- | --- | --- |", flush=True)
    for script, device in choice(asked.only, [asked.device]):
        print(row(script.name, list(measured(script, device, plan, asked.turns))), flush=True)
    return 0


def measured(script: Script, device: Device, plan: Plan, num_turns: int) -> Iterator[Turn]:
    """The rates of each turn; trials are forked as in a search."""
    place, progress = Place(script, device, plan), script.progress_on(device)
    if progress is None or device in script.launcher:
        raise SystemExit(f"{script.name} is started by a launcher or tells no progress, so it cannot be compared here.")
    place.lay_out()
    os.environ.update(place.environ())
    os.chdir(place.cwd)
    words, job = place.words(script.arguments[device]), place.cwd / script.script
    on = "cpu" if device == "cpu" else "cuda:0"
    with trials_of(*words, job=job, device=on, is_forked=True, folder=place.cwd) as trials:
        jobs = {"trial": trials.jobs.trial(trials.script_settings)}
        jobs["final"] = trials.jobs.trial(trials.script_settings, is_final=True)
        for number in range(num_turns):
            place.empty_out()
            alone = watch(
                [sys.executable, str(job), *words], cwd=place.cwd, environ=os.environ, progress=progress,
                limits=LIMITS.of(script, 0.0), log=place.logs / f"alone-{number}.log",
            )  # fmt: skip
            rates = {"script": alone.rate or math.nan}
            for way, one in jobs.items():
                measurement = trials.run(one, seed=number).measurement
                rates[way] = measurement.samples_per_second if measurement is not None else math.nan
            yield rates


def row(name: str, turns: Sequence[Turn]) -> str:
    """A row of the table: the mean rate of the script alone with its extremes, and the mean ratios to it."""
    rates = {way: [turn[way] for turn in turns] for way in WAYS}
    alone = rates["script"]
    ratios = [f"{statistics.fmean(rates[way]) / statistics.fmean(alone):.2f}" for way in WAYS[1:]]
    told = f"{statistics.fmean(alone):,.0f} [{min(alone):,.0f}, {max(alone):,.0f}], {len(turns)} turns"
    return f"| {name} | {told} | {' | '.join(ratios)} |"


if __name__ == "__main__":
    sys.exit(main())
