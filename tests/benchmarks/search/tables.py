"""Tables of what the searches came to, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from tests.benchmarks.search.grids import RecordedJob
from tests.benchmarks.search.problem import Run

NEVER = math.inf


def strategy_table(rows: Mapping[str, Sequence[Run]]) -> str:
    """One line per strategy. A workload counts as found from the first trial within 2 % of its best settings."""
    header = (
        "| strategy | searches | trials to within 2 %, median | found by 14 | by 28 | by 40 | mean regret at 10 "
        "| at 15 | at the end | of the finals' winner | infeasible trials | trials |\n|---|" + "---|" * 11
    )
    return "\n".join([header, *(_row(name, runs) for name, runs in rows.items() if runs)])


def grid_table(grids: Sequence[RecordedJob], rows: Mapping[str, Sequence[Run]], folder: Path) -> str:
    """One line per recorded grid."""
    if not grids:
        return f"There is no complete recording in {folder.relative_to(folder.parents[2])} yet."
    header = (
        "| grid | cells | feasible | searches | trials to within 2 % or the cell's noise, median | 95 % of searches "
        "| finals' winner, mean regret | infeasible trials |\n|---|" + "---|" * 7
    )
    lines = []
    for grid in grids:
        runs = rows[grid.name]
        lines.append(
            f"| {grid.name} | {len(grid.grid.cells)} | {grid.grid.feasible_share:.0%} | {len(runs)} "
            f"| {_count(median(_found(runs)))} | {_count(_quantile(_found(runs), 0.95))} "
            f"| {fmean(run.selected_regret for run in runs):.1%} | {_infeasible_share(runs):.1%} |"
        )
    return "\n".join([header, *lines])


def _row(name: str, runs: Sequence[Run]) -> str:
    found = _found(runs)
    shares = " | ".join(f"{sum(at <= limit for at in found) / len(runs):.0%}" for limit in (14, 28, 40))
    regrets = " | ".join(f"{fmean(run.regret_at(number) for run in runs):.1%}" for number in (10, 15, 10**6))
    return (
        f"| {name} | {len(runs)} | {_count(median(found))} | {shares} | {regrets} "
        f"| {fmean(run.selected_regret for run in runs):.1%} | {_infeasible_share(runs):.1%} "
        f"| {fmean(run.num_trials for run in runs):.0f} |"
    )


def _found(runs: Sequence[Run]) -> list[float]:
    return [run.found_at if run.found_at is not None else NEVER for run in runs]


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _infeasible_share(runs: Sequence[Run]) -> float:
    return sum(run.num_infeasible for run in runs) / sum(run.num_trials for run in runs)


def _count(value: float) -> str:
    return "more" if value == NEVER else f"{value:g}"
