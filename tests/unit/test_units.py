from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.units import (
    GIB,
    MIB,
    format_bytes,
    format_interval,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_memory_cap,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "expected"), [("16GiB", 16 * GIB), ("900 MiB", 900 * MIB), ("1g", GIB), ("2GB", 2 * 10**9), ("1000", 1000)]
)
def test_amounts_of_memory_are_read(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "0", "16 gallons", "1e9", "nan", "inf"])
def test_no_amounts_of_memory_are_refused(text):
    with pytest.raises(UsageError):
        parse_bytes(text)


def test_a_percentage_is_of_the_total():
    assert parse_memory_cap("80%", 1000) == 800


@pytest.mark.parametrize("text", ["0%", "101%", "%", "-5%"])
def test_impossible_percentages_are_refused(text):
    with pytest.raises(UsageError):
        parse_memory_cap(text, 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1.5h", 5400),
        ("90", 90),
        ("2 min", 120),
        ("1h30m", 5400),
        ("2m50s", 170),
        ("1 h 2 min", 3720),
    ],
)
def test_times_are_read(text, expected):
    assert parse_seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0s", "-5m", "soon", "5d", "1h30", "s5m", "1h-5m"])
def test_no_times_are_refused(text):
    with pytest.raises(UsageError):
        parse_seconds(text)


def test_figures_are_written_for_people():
    assert format_bytes(11.2 * GIB) == "11.2 GiB"
    assert format_bytes(512) == "512 B"
    assert [format_seconds(s) for s in (0.42, 42.4, 250, 3720)] == ["0.4 s", "42 s", "4 min 10 s", "1 h 2 min"]
    assert [format_rate(r) for r in (3118.4, 594.2, 87.31, 0.4123)] == ["3,118", "594", "87.3", "0.412"]


def test_an_interval_that_says_nothing_is_not_written_as_figures():
    assert format_interval(3097.0, 3140.2) == "[3,097, 3,140]"
    assert format_interval(0.0155, 15_619_260.0) == "[too uneven to say]"
    assert format_interval(0.0, 10.0) == "[too uneven to say]"
