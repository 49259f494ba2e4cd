"""How good our search is, and how good Optuna's samplers are: `python -m tests.benchmarks.search`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import warnings
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
from tests.benchmarks.search.tables import grid_table, strategy_table

RESULTS = Path(__file__).parent / "RESULTS.md"
FIRST_SEED = 1000
"""Of the family. The plan was written with the workloads below it in view."""

NOTES = """Every workload is searched once. The plan was written on seeds below 1000; one constant of it, the margin of
the memory model on a CPU, was chosen after a look at searches of these seeds, so that for it they are not held out. The
rivals are refused what the memory model rules out, but not what it merely finds unlikely, and are not told how much
memory does not grow with the micro-batch: their infeasible trials compare unfavourably for that reason too. gp ran on
the first few workloads only, so its row cannot be compared with the others."""


def main() -> None:
    options = _options()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", ExperimentalWarning)
    strategies: dict[str, Strategy] = {"autotune": autotune, "autotune, stopping by itself": autotune_stopping}
    strategies |= {name: rival(name) for name in SAMPLERS}
    strategies = {name: strategy for name, strategy in strategies.items() if name not in options.without}
    kept = _Kept(options.keep)
    seeds = range(FIRST_SEED, FIRST_SEED + options.workloads)
    parts = [_heading(), NOTES]
    for device, title in (("cpu", "Simulated workloads on a CPU"), ("cuda", "Simulated workloads on an accelerator")):
        problems = [random_workload(seed, device) for seed in seeds]
        rows = {
            name: kept.runs(name, run, kept.known(name, problems, options.gp), (1,), options.trials)
            for name, run in strategies.items()
        }
        parts.append(f"## {title}\n\n" + strategy_table(rows))
    grids = recorded_grids(GRID_FOLDER)
    rows = {grid.name: kept.runs("autotune", autotune, [grid], range(options.seeds), options.trials) for grid in grids}
    parts.append("## Recorded grids\n\n" + grid_table(grids, rows, GRID_FOLDER))
    parts.append("## The tuner's own time\n\n" + tuner_time_table())
    text = "\n\n".join(parts) + "\n"
    print(text)
    if not options.without and not options.dry:
        RESULTS.write_text(text)


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

    def known(self, name: str, problems: list[Problem], num_gp: int) -> list[Problem]:
        """All problems; of gp, which takes minutes for each, the first few and those that are kept."""
        if name != "gp":
            return problems
        return [p for index, p in enumerate(problems) if index < num_gp or (name, p.name, 1) in self._runs]

    def runs(
        self, name: str, strategy: Strategy, problems: list[Problem], seeds: range | tuple[int, ...], num_trials: int
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
    parser.add_argument("--workloads", type=int, default=16, help="of the family, on each device")
    parser.add_argument("--gp", type=int, default=3, help="workloads for gp, which takes minutes for each")
    parser.add_argument("--trials", type=int, default=40, help="of every search")
    parser.add_argument("--seeds", type=int, default=30, help="searches of every recorded grid")
    parser.add_argument("--without", action="append", default=[], help="a strategy to leave out; nothing is written")
    parser.add_argument("--keep", type=Path, help="file of finished runs; what is in it is not run again")
    parser.add_argument("--dry", action="store_true", help="print only; RESULTS.md stays as it is")
    return parser.parse_args()


if __name__ == "__main__":
    main()
