from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measure.block import Block, Phase
from autotune.model.result import RankResult, RankStatus
from autotune.protocol.codec import MAX_DEPTH, from_plain, to_plain
from autotune.settings import Precision, Settings


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outer:
    rate: float
    is_on: bool = False
    precision: Precision = Precision.FP32
    pair: tuple[int, str] = (1, "a")
    many: tuple[Inner, ...] = ()
    by_name: Mapping[str, float] = field(default_factory=dict)
    settings: Settings | None = None


FULL = Outer(
    rate=1.5,
    is_on=True,
    precision=Precision.BF16,
    pair=(2, "b"),
    many=(Inner(name="x"), Inner(name="y", size=3)),
    by_name={"a": 1.0},
    settings=Settings(num_workers=2),
)


@dataclass(frozen=True)
class WholeFirst:
    value: int | float


@dataclass(frozen=True)
class FractionFirst:
    value: float | int


def test_the_first_kind_of_a_choice_that_fits_wins_whatever_was_read_before():
    kinds = [type(from_plain(each, {"value": 1}).value) for each in (WholeFirst, FractionFirst, WholeFirst)]
    assert kinds == [int, float, int]


def test_objects_survive_json():
    assert from_plain(Outer, json.loads(json.dumps(to_plain(FULL)))) == FULL


@pytest.mark.parametrize(
    "change",
    [
        {"rate": "1"},
        {"rate": None},
        {"rate": float("nan")},
        {"rate": True},
        {"is_on": 1},
        {"precision": "fp8"},
        {"pair": [1]},
        {"pair": "ab"},
        {"many": {}},
        {"many": [{"nam": "x"}]},
        {"many": [{"name": "x", "size": 1.5}]},
        {"by_name": {"a": "b"}},
        {"by_name": [1]},
        {"settings": {"num_workers": -1}},
        {"unknown": 1},
    ],
)
def test_values_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError):
        from_plain(Outer, {**to_plain(FULL), **change})


def test_a_missing_field_without_a_default_is_refused():
    with pytest.raises(ValueError, match="Outer lacks rate"):
        from_plain(Outer, {})


def test_what_has_no_plain_form_is_refused():
    with pytest.raises(TypeError):
        to_plain(Outer(rate=object()))  # type: ignore[arg-type]


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_deep_nesting_ends_in_a_value_error():
    with pytest.raises(ValueError):
        from_plain(Outer, {"rate": 1.0, "many": nested(50 * MAX_DEPTH)})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
fields_of_a_report = st.sampled_from(sorted(RankResult.__dataclass_fields__))


@given(st.dictionaries(fields_of_a_report, json_values, max_size=8))
def test_any_report_is_either_built_or_refused_with_a_value_error(report):
    try:
        rank = from_plain(RankResult, report)
    except ValueError:
        return
    assert isinstance(rank.status, RankStatus)


def test_a_report_with_blocks_survives_json():
    block = Block(
        phase=Phase.WINDOW, num_steps=2, num_micro_batches=4, num_samples=64.0, duration_s=0.1, data_wait_s=0.05
    )
    rank = RankResult(rank=0, world_size=1, status=RankStatus.MEASURED, blocks=(block,), observed={"num_workers": "2"})
    assert rank == from_plain(RankResult, json.loads(json.dumps(to_plain(rank))))
