"""Figures of a report are checked by the unit in their names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autotune.model.checks import check_figures
from autotune.model.what_if import StorageTimes


@dataclass
class Figures:
    """One figure of each unit."""

    wall_s: float = 1.0
    file_bytes: int = 1
    num_files: int = 1
    read_bytes_per_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


def test_a_rate_per_second_is_no_time() -> None:
    assert Figures(read_bytes_per_s=3.9e9).read_bytes_per_s == 3.9e9


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("wall_s", 2e9),
        ("wall_s", -1.0),
        ("wall_s", float("nan")),
        ("file_bytes", 1 << 51),
        ("num_files", -1),
        ("read_bytes_per_s", -1.0),
        ("read_bytes_per_s", float("inf")),
    ],
)
def test_an_impossible_figure_is_refused_by_its_name(name: str, figure: float) -> None:
    with pytest.raises(ValueError, match=f"{name} cannot be"):
        Figures(**{name: figure})


def test_files_read_faster_than_a_gigabyte_per_second_fit_into_the_times_of_storage() -> None:
    times = StorageTimes(
        num_samples=1, sample_s=1e-3, read_s=1e-4, decode_s=5e-4, num_reads=1.0, read_bytes=122_009,
        cold_read_bytes_per_s=3_927_360_125.3,
    )  # fmt: skip
    assert times.cold_read_bytes_per_s == 3_927_360_125.3
