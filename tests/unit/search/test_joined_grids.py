"""Recordings of one grid that ran side by side become one, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.lab.grid import Grid
from autotune.lab.grid_file import read_grid
from tests.benchmarks.search.join import joined, write
from tests.unit import grids


def recording(seed: int, *, rounds: int) -> Grid:
    """So many rounds of the small grid, recorded in the order of another seed."""
    whole = grids.grid()
    records = [record for record in whole.records if record.round < rounds]
    return Grid(replace(whole.header, seed=seed, repeats=rounds), records)


def test_all_measurements_of_both_are_in_it_under_other_rounds():
    one, other = recording(0, rounds=1), recording(7, rounds=1)
    both = joined([one, other], repeats=2)
    assert both.header.repeats == 2 and both.missing == ()
    assert sorted((r.cell, r.round) for r in both.records) == sorted(
        (cell, number) for cell in range(len(one.cells)) for number in (0, 1)
    )


def test_part_of_a_recording_counts_as_often_as_its_rarest_cell():
    part = recording(7, rounds=1)
    whole = joined([recording(0, rounds=1), Grid(part.header, part.records[1:])])
    assert whole.header.repeats == 1
    with pytest.raises(UsageError, match="fewer than 2"):
        joined([whole], repeats=2)


def test_another_script_is_no_recording_of_the_same_grid():
    other = recording(7, rounds=1)
    header = replace(other.header, fingerprint={"script": "another", "host": {}})
    with pytest.raises(UsageError, match="no recording of the same grid"):
        joined([recording(0, rounds=1), Grid(header, other.records)])


def test_it_is_read_back_as_it_was_written(tmp_path):
    both = joined([recording(0, rounds=1), recording(7, rounds=1)])
    write(tmp_path / "grid.jsonl", both)
    found = read_grid(tmp_path / "grid.jsonl")
    assert (found.header, found.records) == (both.header, both.records)
