"""One grid of recordings of the same cells that ran side by side: `python -m tests.benchmarks.search.join OUT IN...`.

Rounds and anchors are numbered on, measurements stay as they are, in the order of time. The header says how many times
every cell was measured at least, which must be once; `--repeats N` refuses fewer.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.errors import AutotuneError, UsageError
from autotune.lab.grid import CellRecord, Grid
from autotune.lab.grid_file import create_grid, open_grid, read_grid

MAY_DIFFER = {"seed", "repeats", "recorded_at", "facts", "space"}
"""Fields of the header in which recordings of one grid may differ: order, length, date, what each one's own probe
timed, and what is said of settings outside the grid. What makes cells comparable are they and the fingerprint."""


def joined(grids: Sequence[Grid], *, repeats: int = 1) -> Grid:
    """One grid with all measurements of several recordings of the same cells.

    Args:
        grids: Recordings, at least one; the first's facts are kept.
        repeats: Measurements that every cell must have, at least 1.

    Raises:
        UsageError: They are not recordings of one grid, or some cell was measured less often.
    """
    first = grids[0].header
    for grid in grids[1:]:
        same = replace(grid.header, **{name: getattr(first, name) for name in MAY_DIFFER})
        if same != first:
            raise UsageError(
                f"{grid.header.study}, seed {grid.header.seed}, is no recording of the same grid.",
                "Name parts of one grid.",
            )
    records: list[CellRecord] = []
    num_rounds = num_anchors = 0
    for grid in grids:
        for record in grid.records:
            anchor = None if record.anchor is None else record.anchor + num_anchors
            records.append(replace(record, round=record.round + num_rounds, anchor=anchor))
        num_rounds += grid.header.repeats
        num_anchors += 1 + max((record.anchor or 0 for record in grid.records), default=0)
    turns = Counter(record.cell for record in records if record.anchor is None)
    least = min(turns[cell] for cell in range(len(first.cells)))
    if least < repeats:
        raise UsageError(f"Some cell was measured {least} times, fewer than {repeats}.", "Record on.")
    begun = min(grid.header.recorded_at for grid in grids)
    records.sort(key=lambda record: record.started_at)
    return Grid(replace(first, repeats=least, recorded_at=begun), records)


def write(path: Path, grid: Grid) -> None:
    """Writes a grid to a new file.

    Raises:
        UsageError: There is one, or it cannot be made.
    """
    create_grid(path, grid.header)
    with open_grid(path) as file:
        for record in grid.records:
            file.append(record)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search.join", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    try:
        write(options.out, joined([read_grid(path) for path in options.recordings], repeats=options.repeats))
    except AutotuneError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
