"""What `autotune run --watch` costs a step, and how soon the watch notices a fall of the rate.

    python -m tests.benchmarks.watch [--runs 10] [--fall 0.1] [--write]

The cost is measured on this machine: a small network trains with and without the watch, in turns. Hours of training are
simulated, clock included, with the watch's own code: on three machines of different noise, each run has a fall at a
random moment, or none. Prints the report; --write puts the report into RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import platform
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from autotune.host import cpu_model, usable_cpus
from tests.benchmarks.watch.cost import ROUNDS, STEPS, cost_us
from tests.benchmarks.watch.drifts import MACHINES, Hour, hours

RESULTS = Path(__file__).with_name("RESULTS.md")


def report(num_runs: int, fall: float) -> str:
    """The figures as Markdown."""
    cost, fallen, steady = cost_us(), hours(fall=fall, num_runs=num_runs), hours(fall=0.0, num_runs=num_runs)
    where = (
        f"{cpu_model()}, {usable_cpus():g} usable cores, Python {platform.python_version()}, torch {version('torch')}"
    )
    rows = [_row(machine.name, fallen, steady) for machine in MACHINES]
    return "\n".join(
        [
            "# The watch over real training",
            "",
            f"Written by `python -m tests.benchmarks.watch --runs {num_runs} --fall {fall:g} --write`, "
            f"{datetime.now(UTC):%Y-%m-%d}: {where}.",
            "",
            f"**Cost.** The calls of the watch take {cost['bare']:.2f} us a step. A step of {cost['step']:.0f} us with "
            f"its watch takes {cost['watch']:.2f} us more (quartiles of {ROUNDS} rounds in turns, {STEPS} steps each: "
            f"{cost['low']:.2f} to {cost['high']:.2f} us). Processor time, measured on this machine.",
            "",
            f"**Drift.** Simulated hours with steps of 0.1 s: {num_runs} per machine with a fall of the rate by "
            f"{fall:.0%} at a random moment between minute 10 and 45, and {num_runs} without a fall. The noise of the "
            "steps is simulated too; the watch is the real code on the simulated clock.",
            "",
            "| machine | noise of steps, of minutes | found | minutes until told: median, longest | told size | false "
            "alarms before a fall | false alarms in steady hours |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _row(name: str, fallen: Sequence[Hour], steady: Sequence[Hour]) -> str:
    machine = next(each for each in MACHINES if each.name == name)
    runs, quiet = [each for each in fallen if each.machine == name], [each for each in steady if each.machine == name]
    minutes = [each.found_after_min for each in runs if each.found_after_min is not None]
    sizes = [each.told[len(each.told_at_s) - 1] for each in runs if each.found_after_min is not None]
    told = f"{statistics.median(minutes):.1f}, {max(minutes):.1f}" if minutes else "-"
    size = f"{statistics.median(sizes):.0%}" if sizes else "-"
    before = sum(each.false_alarms for each in runs)
    alarms = sum(each.false_alarms for each in quiet)
    noise = f"{machine.of_steps:.0%}, {machine.of_minutes:.1%}"
    return f"| {name} | {noise} | {len(minutes)} of {len(runs)} | {told} | {size} | {before} | {alarms} |"


def main() -> None:
    """Measures, simulates and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="per machine, with a fall and without")
    parser.add_argument("--fall", type=float, default=0.1, help="share by which the rate falls")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md")
    args = parser.parse_args()
    text = report(args.runs, args.fall)
    print(text)
    if args.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
