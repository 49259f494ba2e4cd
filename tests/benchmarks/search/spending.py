"""What whole searches name, and how much time they take: `python -m tests.benchmarks.search.spending`.

A search here is the real one: the plan, the loop over trials, the budget and the finals, on a clock of its own. A run
takes the time of the recorded run, or the price of a simulated job; no process is started.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import optuna

from autotune.lab.function_runner import FinishedRun
from autotune.lab.grid import Grid
from autotune.measure.window_stopping import FINALS_HALF_WIDTH_RATIO
from autotune.model.outcome import Outcome
from autotune.model.result import SWITCH, StartKind, TrialResult
from autotune.protocol.job import TrialJob
from autotune.search.plan_state import PlanLimits
from autotune.search.search_stopping import is_untried
from autotune.search.study_search import Search
from autotune.settings import graph_kind
from autotune.study.budget import MOST_FINALISTS, Budget
from autotune.study.final_choice import FinalsResult
from autotune.study.finals import Finals
from autotune.study.jobs import Jobs
from autotune.study.second_look import SecondLooks
from autotune.study.stop import StopRequest
from autotune.study.target import make_target
from autotune.study.trial_loop import LoopEnd, TrialLoop
from autotune.study.trial_rounds import num_rivals, results_of_trials, results_without_choice
from tests.benchmarks.search.family import random_workload
from tests.benchmarks.search.grids import GRID_FOLDER, RecordedJob, recorded_grids
from tests.benchmarks.search.problem import Problem
from tests.unit.facts import cpu_machine, gpu_machine, script_facts, search_spec

BUDGETS_S = (60.0, 120.0, 300.0, 900.0)
PROBED_S = 6.0
"""Time of a probe after the script's first step."""
FINAL_FACTOR = 2.0
"""Length of a final's window over a trial's: finals want a narrower interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Seconds of a run beside its window, on a simulated job."""

    probe_s: float
    start_s: float
    window_s: float | None = 3.0
    """None = as recorded."""
    compile_s: float = 0.0
    """More for a compiled model."""
    is_live: bool = False
    """Trials share a process until one fails: they start once, and compile each kind of graph once."""
    switch_s: float = 0.0
    """Of a trial in a running process."""


PRICES = {
    "cpu": Prices(probe_s=6.0, start_s=1.5),
    "cuda": Prices(probe_s=20.0, start_s=15.0, compile_s=35.0),
    "cuda-live": Prices(probe_s=20.0, start_s=15.0, compile_s=35.0, is_live=True),
}


BUILD_S = 5.0
"""Least time of a switch that built a model."""


def recorded_prices(grid: Grid) -> Prices | None:
    """Prices of runs beside their windows, as recorded live; None for a recording with a process per measurement."""
    if grid.header.start != "live":
        return None
    results = [(grid.cells[record.cell], record.result) for record in grid.records if record.result.measurement]
    beside = [(result, result.wall_s - _window_s(result)) for settings, result in results if not settings.compile]
    switches = [result.durations_s.get(SWITCH, 0.0) for _, result in results]
    builds = [switch_s for switch_s in switches if switch_s >= BUILD_S]
    starts = [beside_s for result, beside_s in beside if not result.is_live]
    lives = [beside_s for result, beside_s in beside if result.is_live]
    return Prices(
        probe_s=grid.header.facts.first_step_s + PROBED_S,
        start_s=median(starts) if starts else grid.header.facts.first_step_s,
        window_s=None,
        compile_s=median(builds) if builds else 0.0,
        is_live=True,
        switch_s=median(lives) if lives else 0.0,
    )


def _window_s(result: TrialResult) -> float:
    return result.measurement.window_s if result.measurement is not None else 0.0


class Clock:
    """A clock that only runs move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class PricedRunner:
    """Answers from a problem, and moves the clock by the price of the run; a run past the end of the time is cut.

    A process of trials serves further trials, and finals that allow it, until another final or a failure ends it.
    """

    def __init__(self, problem: Problem, seed: int, clock: Clock, prices: Prices | None) -> None:
        self._problem, self._seed, self._clock, self._prices = problem, seed, clock, prices
        self.num_runs = 0
        self._is_warm = False
        """Whether a process of trials runs."""
        self._built: set[object] = set()
        """Kinds of graphs that the process has compiled."""

    def start(self, job: TrialJob) -> FinishedRun:
        settings = job.request.settings
        assert settings is not None
        self.num_runs += 1
        is_final = job.request.window.half_width_ratio == FINALS_HALF_WIDTH_RATIO
        seed = self._seed if isinstance(self._problem, RecordedJob) else self._seed + 7919 * self.num_runs
        result = self._problem.run(settings, seed, job.request.incumbent_samples_per_second)
        result = self._priced(job, result, is_final=is_final)
        left_s = job.ends_by - time.monotonic() if job.ends_by is not None else float("inf")
        if result.wall_s > left_s + 0.5:  # The two clocks differ by what this process takes to think.
            result = TrialResult(outcome=Outcome.INTERRUPTED, reason="The time was spent.", wall_s=max(0.0, left_s))
        self._clock.now_s += result.wall_s
        return FinishedRun(None, result)

    def close(self) -> None:
        """Keeps no process."""

    @property
    def has_process(self) -> bool:
        """Whether a process of trials waits."""
        return self._is_warm

    def can_switch(self, before: TrialJob, job: TrialJob) -> bool:
        """Whether a process can go on with another job."""
        return job.serves

    def goes_on(self, job: TrialJob) -> bool:
        """Whether the waiting process can go on with a job."""
        return self._is_warm and job.serves

    def _priced(self, job: TrialJob, result: TrialResult, *, is_final: bool) -> TrialResult:
        measured = result.measurement
        if self._prices is None:
            wall_s, window_s = result.wall_s, _window_s(result)
        else:
            is_shared = self._prices.is_live and job.serves and self._is_warm
            is_compiled = job.request.settings is not None and job.request.settings.compile
            built = self._built if is_shared else set()
            kind = graph_kind(job.request.settings) if is_compiled and job.request.settings is not None else None
            compile_s = self._prices.compile_s if is_compiled and kind not in built else 0.0
            window_s = _window_s(result) if self._prices.window_s is None else self._prices.window_s
            window_s = window_s if measured is not None else 0.0
            wall_s = (self._prices.switch_s if is_shared else self._prices.start_s) + compile_s + window_s
            if is_shared:
                result = replace(result, start=StartKind.LIVE, durations_s={SWITCH: compile_s})
            else:
                result = replace(result, durations_s={"start": self._prices.start_s})
            self._is_warm = job.serves and result.outcome.is_complete
            self._built = built | {kind} if self._is_warm and is_compiled else built
        if measured is None:
            return replace(result, wall_s=wall_s)
        wanted_s = min(job.request.window.max_window_s, FINAL_FACTOR * window_s if is_final else window_s)
        wall_s += wanted_s - window_s
        return replace(result, wall_s=wall_s, measurement=replace(measured, window_s=wanted_s))


class MemoryRepository:
    """The study's records in memory: what the loop and the finals ask of a database."""

    def __init__(self) -> None:
        self._trials: dict[int, Any] = {}
        self._finals: dict[tuple[int, int], Any] = {}

    def trials(self, study: str) -> tuple[Any, ...]:
        return tuple(record for _, record in sorted(self._trials.items()))

    def record_trial(self, study: str, record: Any) -> None:
        self._trials[record.number] = record

    def finals(self, study: str) -> tuple[Any, ...]:
        return tuple(record for _, record in sorted(self._finals.items()))

    def record_final(self, study: str, record: Any) -> None:
        self._finals[record.round, record.number] = record

    def live_owners(self, study: str, *, now: Any) -> tuple[Any, ...]:
        return ()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: None


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """One whole search."""

    problem: str
    seed: int
    budget_s: float
    status: str
    """`improved`, `no_gain`, `too_short` or `none`."""
    regret: float
    """Of the named settings; of the script's own where nothing is named."""
    own_regret: float
    is_found: bool
    wall_s: float
    num_trials: int
    num_infeasible: int
    num_finals: int
    half_width: float | None
    num_changes: int
    """Settings of the winner that differ from the script's own."""
    enough_s: float
    """Time that the search would call enough."""


def searched(problem: Problem, seed: int, budget_s: float, prices: Prices | None) -> Spent:
    """One search of a problem with a time limit."""
    clock = Clock()
    probe_s = prices.probe_s if prices is not None else 6.0
    clock.now_s = probe_s
    budget = Budget(budget_s, probe_s, clock)
    limits = PlanLimits(
        usable_cpus=problem.usable_cpus,
        cap_bytes=problem.cap_bytes,
        fixed_bytes=problem.fixed_bytes,
        fixed_estimate_bytes=problem.fixed_estimate_bytes,
    )
    is_live = prices is not None and prices.is_live
    spec = search_spec(memory_cap="4GiB", budget_s=budget_s, start="live" if is_live else "fresh")
    search = Search(None, "benchmark", problem.space, limits, seed=seed, max_trials=spec.trials_limit, spend_all=False)
    facts = problem.grid.header.facts if isinstance(problem, RecordedJob) else script_facts()
    is_cuda = isinstance(problem, RecordedJob) and problem.grid.header.device == "cuda"
    device = (gpu_machine() if is_cuda else cpu_machine()).device
    target = replace(make_target(spec, device), cap_bytes=problem.cap_bytes)
    runner = PricedRunner(problem, seed, clock, prices)
    repository: Any = MemoryRepository()
    common: Any = {
        "study": "benchmark",
        "repository": repository,
        "budget": budget,
        "stop": StopRequest(),
        "on_event": lambda event: None,
    }
    jobs = Jobs(spec=spec, target=target, facts=facts, script_settings=search.script_settings)
    loop = TrialLoop(search=search, jobs=jobs, runner=runner, **common)

    def finals(_: LoopEnd) -> FinalsResult | None:
        history, finalists = search.history, search.finalists(MOST_FINALISTS)
        chosen = results_of_trials(history, finalists, repository.trials(""))
        unselected = results_without_choice(history, finalists, chosen)
        return Finals(measuring=loop.measuring, seed=seed, **common).run(finalists, search.baseline, unselected, chosen)

    looks = SecondLooks("", search=search, repository=repository, budget=budget, stop=common["stop"])
    end, found = looks.finals(loop, loop.run(), finals)
    history = search.history
    own = search.script_settings
    status, named, half = "none", own, None
    if found is not None:
        named = found.winner.settings
        is_compared = found.is_compared and not found.is_open and not (end.is_limit and is_untried(history))
        status = "too_short" if not is_compared else "no_gain" if named == own else "improved"
        if found.comparison is not None:
            half = (found.comparison.high / found.comparison.low - 1) / 2
    return Spent(
        problem=problem.name,
        seed=seed,
        budget_s=budget_s,
        status=status,
        regret=problem.regret(named),
        own_regret=problem.regret(own),
        is_found=problem.is_found(named),
        wall_s=clock.now_s,
        num_trials=len(history.trials),
        num_infeasible=sum(trial.outcome.is_infeasible for trial in history.trials),
        num_finals=len(repository.finals("")),
        half_width=half,
        num_changes=len(named.differences(own)),
        enough_s=budget.enough_s(num_rivals=num_rivals(history.feasible, history)),
    )


HEAD = (
    "| problem | --time | searches | named within 2 % | mean regret (own settings) | too short | infeasible | trials "
    "| finals | changes | half width | time taken, median | most |\n" + "|---" * 13 + "|"
)


def row(runs: Sequence[Spent]) -> str:
    """One line of the table, for the runs of a problem and a limit."""
    halves = [run.half_width for run in runs if run.half_width is not None]
    share_infeasible = sum(run.num_infeasible for run in runs) / max(1, sum(run.num_trials for run in runs))
    cells = [
        f"{runs[0].budget_s:g} s",
        str(len(runs)),
        f"{fmean(run.is_found for run in runs):.0%}",
        f"{fmean(run.regret for run in runs):.1%} ({fmean(run.own_regret for run in runs):.0%})",
        f"{fmean(run.status in ('too_short', 'none') for run in runs):.0%}",
        f"{share_infeasible:.1%}",
        f"{median(run.num_trials for run in runs):g}",
        f"{median(run.num_finals for run in runs):g}",
        f"{median(run.num_changes for run in runs):g}",
        f"{median(halves):.1%}" if halves else "-",
        f"{median(run.wall_s for run in runs):.0f} s",
        f"{max(run.wall_s / run.budget_s for run in runs):.0%}",
    ]
    return " | ".join(cells)


def _one(task: tuple[str, int, float]) -> Spent:
    name, seed, budget_s = task
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind, _, number = name.partition(":")
    if kind == "grid":
        grid = next(grid for grid in _grids() if grid.name == number)
        return searched(grid, seed, budget_s, recorded_prices(grid.grid))
    return searched(random_workload(seed, kind.removesuffix("-live")), seed, budget_s, PRICES[kind])


_KNOWN: list[RecordedJob] = []


def _grids() -> list[RecordedJob]:
    if not _KNOWN:
        _KNOWN.extend(recorded_grids(GRID_FOLDER))
    return _KNOWN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30, help="searches of each grid")
    parser.add_argument("--workloads", type=int, default=32, help="simulated jobs of each device")
    parser.add_argument("--first-seed", type=int, default=5000, help="of the simulated jobs")
    parser.add_argument("--only", action="append", help="a part of a problem's name, such as grid or cuda")
    parser.add_argument("--time", action="append", type=float, help="seconds; may be repeated")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="file for every search, one line of JSON each")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    names = {f"grid:{grid.name}": range(options.seeds) for grid in _grids()}
    names |= {kind: range(options.first_seed, options.first_seed + options.workloads) for kind in PRICES}
    print(HEAD)
    with ProcessPoolExecutor(options.processes) as pool:
        for name, seeds in names.items():
            if options.only and not any(part in name for part in options.only):
                continue
            for budget_s in options.time or BUDGETS_S:
                runs = list(pool.map(_one, [(name, seed, budget_s) for seed in seeds]))
                print(f"| {name.removeprefix('grid:')} | {row(runs)} |", flush=True)
                if options.keep is not None:
                    with options.keep.open("a") as stream:
                        stream.writelines(json.dumps(asdict(run)) + "\n" for run in runs)


if __name__ == "__main__":
    main()
