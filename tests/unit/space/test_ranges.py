from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import SearchSpaceError
from autotune.settings import GROUP_OF_FIELD
from autotune.space.ranges import parse_range, parse_value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("num_workers", "0,2,4", (0, 2, 4)),
        ("num_workers", "2..5", (2, 3, 4, 5)),
        ("num_workers", "7..9", (7, 8, 9)),
        ("batch_size", "8..10", (8, 9, 10)),
        ("pin_memory", "true,false", (True, False)),
        ("precision", "bf16", ("bf16",)),
        ("memory_fraction", "0.5..0.7", (0.5, 0.6, 0.7)),
        ("num_workers", "2,2", (2,)),
    ],
)
def test_ranges_are_read(name, text, expected):
    assert parse_range(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num_workers", ""),
        ("num_workers", "4..2"),
        ("num_workers", "-1"),
        ("num_workers", "two"),
        ("precision", "fp32..bf16"),
        ("pin_memory", "maybe"),
        ("pin_memory", "false..true"),
        ("memory_fraction", "2"),
        ("compile", ",,"),
        ("workers", "1"),
        ("num_workers", "100000"),
        ("intra_op_threads", "0..99999999999999999999"),
        ("batch_size", "1..999999999999"),
    ],
)
def test_impossible_ranges_are_refused(name, text):
    with pytest.raises(SearchSpaceError):
        parse_range(name, text)


@given(st.sampled_from(sorted(GROUP_OF_FIELD)), st.text(max_size=12))
def test_any_text_is_a_value_or_refused_with_a_sentence(name, text):
    try:
        parse_value(name, text)
    except SearchSpaceError as error:
        assert str(error)
