"""How good our search is, and how good Optuna's samplers are: `python -m tests.benchmarks.search`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning

from tests.benchmarks.search.family import random_workload
from tests.benchmarks.search.grids import GRID_FOLDER, recorded_grids
from tests.benchmarks.search.ours import autotune, autotune_stopping
from tests.benchmarks.search.overhead import tuner_time_table
from tests.benchmarks.search.problem import Problem, Run, Strategy
from tests.benchmarks.search.rivals import SAMPLERS, rival
from tests.benchmarks.search.tables import grid_note, strategy_table

RESULTS = Path(__file__).parent / "RESULTS.md"
FIRST_SEED = 5000
"""Of the family. Those below 3000 are for development, and what was judged by 3000 to 3031 was then worked on."""

DEVICES = {"cpu": "on a CPU", "cuda": "on an accelerator"}

OURS, STOPPING = "autotune", "autotune, stopping by itself"

NOTES = """Every workload is searched once, every recorded grid with several seeds. What is named after a trial is what
finals held then would name: of the baseline and the finalists the one with the highest median of three measurements.
It counts as found from the trial on from which it stays within 2 % of the truth of the best settings. The plan and the
forecasts were written on seeds below 3000; these seeds had no part in it. The rivals are refused what the memory model
rules out, but not what it merely finds unlikely, and are not told how much memory does not grow with the micro-batch:
their infeasible trials compare unfavourably for that reason too. gp takes minutes for a search and ran on the first few
workloads only, so its row cannot be compared with the others."""

SOLVED_NOTE = """The same workloads for somebody whose own settings are the best already. The search should say so after
a handful of trials."""


def main() -> None:
    options = _options()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", ExperimentalWarning)
    strategies: dict[str, Strategy] = {OURS: autotune, STOPPING: autotune_stopping}
    strategies |= {name: rival(name) for name in SAMPLERS}
    strategies = {name: strategy for name, strategy in strategies.items() if name not in options.without}
    kept = _Kept(options.keep)
    seeds = range(options.first_seed, options.first_seed + options.workloads)
    parts = [_heading(), NOTES]
    for device in (options.device or DEVICES) if options.workloads else ():
        title = DEVICES[device]
        problems = [random_workload(seed, device) for seed in seeds]
        rows = _rows(kept, strategies, problems, (1,), options)
        parts.append(f"## Simulated workloads {title}\n\n" + strategy_table(rows))
        solved = [random_workload(seed, device).solved() for seed in seeds]
        rows = {STOPPING: kept.runs(STOPPING, autotune_stopping, solved, (1,), options.trials)}
        parts.append(f"### From the best settings\n\n{SOLVED_NOTE}\n\n" + strategy_table(rows))
    grids = recorded_grids(options.grids)
    together: dict[str, list[Run]] = {name: [] for name in strategies}
    for grid in grids:
        rows = _rows(kept, strategies, [grid], range(options.seeds), options)
        parts.append(f"## Recorded grid {grid.name}\n\n{grid_note(grid)}\n\n" + strategy_table(rows))
        together = {name: [*runs, *rows[name]] for name, runs in together.items()}
    if len(grids) > 1:
        parts.append("## All recorded grids together\n\n" + strategy_table(together))
    if not grids:
        parts.append(f"## Recorded grids\n\nThere is no complete recording in {options.grids.name} yet.")
    parts.append("## The tuner's own time\n\n" + tuner_time_table())
    text = "\n\n".join(parts) + "\n"
    print(text)
    if not (options.without or options.device or options.dry):
        RESULTS.write_text(text)


def _rows(
    kept: _Kept,
    strategies: Mapping[str, Strategy],
    problems: Sequence[Problem],
    seeds: Sequence[int],
    options: argparse.Namespace,
) -> dict[str, list[Run]]:
    """What each strategy came to on the problems; gp on the first few."""
    rows = {}
    for name, strategy in strategies.items():
        few, some = (problems[: options.gp], seeds[: options.gp]) if name == "gp" else (problems, seeds)
        rows[name] = kept.runs(name, strategy, few, some, options.trials)
    return rows


class _Kept:
    """Runs that are kept in a file, so that a benchmark that was stopped goes on."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._runs: dict[tuple[str, str, int], Run] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                plain = json.loads(line)
                key = (plain.pop("strategy"), plain["problem"], plain["seed"])
                self._runs[key] = Run(**{**plain, "regrets": tuple(plain["regrets"])})

    def runs(
        self, name: str, strategy: Strategy, problems: Sequence[Problem], seeds: Sequence[int], num_trials: int
    ) -> list[Run]:
        return [self._run(name, strategy, problem, seed, num_trials) for problem in problems for seed in seeds]

    def _run(self, name: str, strategy: Strategy, problem: Problem, seed: int, num_trials: int) -> Run:
        key = (name, problem.name, seed)
        if key not in self._runs:
            self._runs[key] = strategy(problem, seed, num_trials)
            if self._path is not None:
                with self._path.open("a") as stream:
                    stream.write(json.dumps({"strategy": name, **asdict(self._runs[key])}) + "\n")
        return self._runs[key]


def _heading() -> str:
    command = shlex.join(["python", "-m", "tests.benchmarks.search", *sys.argv[1:]])
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, Optuna {optuna.__version__}"
    return (
        f"# The search, measured\n\nBy `{command}` on a machine of {machine}. Only the tuner's own time depends on it."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search", description=__doc__)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the family")
    parser.add_argument("--workloads", type=int, default=32, help="of the family, on each device; 0: grids alone")
    parser.add_argument("--gp", type=int, default=3, help="workloads for gp, which takes minutes for each")
    parser.add_argument("--device", action="append", choices=DEVICES, help="only workloads of it; nothing is written")
    parser.add_argument("--trials", type=int, default=40, help="of every search")
    parser.add_argument("--grids", type=Path, default=GRID_FOLDER, help="folder of recorded grids")
    parser.add_argument("--seeds", type=int, default=30, help="searches of every recorded grid")
    parser.add_argument("--without", action="append", default=[], help="a strategy to leave out; nothing is written")
    parser.add_argument("--keep", type=Path, help="file of finished runs; what is in it is not run again")
    parser.add_argument("--dry", action="store_true", help="print only; RESULTS.md stays as it is")
    return parser.parse_args()


if __name__ == "__main__":
    main()
