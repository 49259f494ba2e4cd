"""Tables of what the searches came to, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from tests.benchmarks.search.grids import RecordedJob
from tests.benchmarks.search.problem import Run

NEVER = math.inf


COLUMNS = (
    "searches",
    "within 2 % is tried, median trial",
    "95 % of searches",
    "tried by 28",
    "tried by 40",
    "and named, median trial",
    "named by 14",
    "named by 28",
    "named by 40",
    "mean regret of what is named at 10",
    "at 15",
    "at the end",
    "infeasible trials",
    "trials, median",
)


def strategy_table(rows: Mapping[str, Sequence[Run]]) -> str:
    """One line per strategy."""
    header = f"| strategy | {' | '.join(COLUMNS)} |\n|---|" + "---|" * len(COLUMNS)
    return "\n".join([header, *(_row(name, runs) for name, runs in rows.items() if runs)])


def grid_note(grid: RecordedJob) -> str:
    """What a recorded grid is."""
    return (
        f"{len(grid.grid.cells)} cells, {grid.grid.feasible_share:.0%} of them feasible. Within 2 % means 2 % or the "
        "cell's own noise."
    )


def _row(name: str, runs: Sequence[Run]) -> str:
    tried, named = [_at(run.tried_at) for run in runs], [_at(run.named_at) for run in runs]
    cells = [
        str(len(runs)),
        _count(median(tried)),
        _count(_quantile(tried, 0.95)),
        *(f"{sum(at <= limit for at in tried) / len(runs):.0%}" for limit in (28, 40)),
        _count(median(named)),
        *(f"{sum(at <= limit for at in named) / len(runs):.0%}" for limit in (14, 28, 40)),
        *(f"{fmean(run.regret_at(number) for run in runs):.1%}" for number in (10, 15, 10**6)),
        f"{_infeasible_share(runs):.1%}",
        _count(median(run.num_trials for run in runs)),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _at(trial: int | None) -> float:
    return NEVER if trial is None else trial


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _infeasible_share(runs: Sequence[Run]) -> float:
    return sum(run.num_infeasible for run in runs) / sum(run.num_trials for run in runs)


def _count(value: float) -> str:
    return "more" if value == NEVER else f"{value:g}"
