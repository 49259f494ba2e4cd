from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Iterator

import pytest
import torch
from torch.utils.data import BatchSampler

from autotune.trial.torch.batch_structure import LongBatchSampler, is_led_by_samples, tensors_of


@pytest.mark.parametrize(
    ("shape", "batch_size", "expected"),
    [
        ((8, 5), 8, True),
        ((5, 8), 8, False),
        ((35, 20), 20, False),
        ((3, 5), 8, True),
        ((100, 4), 8, False),
        ((8, 8), 8, True),
        ((7, 3), None, True),
    ],
    ids=["samples first", "time first", "much time first", "a small batch", "flattened", "both", "nobody knows"],
)
def test_the_first_dimension_is_that_of_the_samples_or_it_is_not(
    shape: tuple[int, ...], batch_size: int | None, expected: bool
) -> None:
    batch = {"inputs": torch.zeros(shape), "targets": [torch.zeros(shape)]}
    assert is_led_by_samples(batch, batch_size) is expected


def test_a_batch_without_tensors_is_led_by_nothing() -> None:
    assert not is_led_by_samples(["a", "b"], 2)


def long(inner: BatchSampler, least_batches: int = 0, num_trained: float = math.inf) -> LongBatchSampler:
    """Over a sampler, for a script that trains in so many of its epochs."""
    ends = itertools.count(1)
    return LongBatchSampler.over(
        inner, least_batches=least_batches, may_repeat=lambda _: next(ends) < num_trained, num_backwards=lambda: 0
    )


class Buckets(BatchSampler):
    def __init__(self, sampler: Iterable[int], width: int) -> None:
        super().__init__(sampler, width, drop_last=True)
        self.width = width


@pytest.mark.parametrize(("least_batches", "length"), [(0, 3), (3, 3), (4, 6), (6, 6), (7, 9)])
def test_a_long_epoch_is_as_long_as_its_sampler_says_and_no_longer(least_batches: int, length: int) -> None:
    made = long(BatchSampler(range(5), 2, drop_last=False), least_batches)
    assert len(made) == len(list(made)) == length


class Drawn(BatchSampler):
    """Draws its batches as an iteration begins, and has a length from then on."""

    def __init__(self, num_batches: int) -> None:
        super().__init__(range(2 * num_batches), 2, drop_last=False)
        self.num_drawn = 0

    def __iter__(self) -> Iterator[list[int]]:
        self.num_drawn = super().__len__()
        yield from super().__iter__()

    def __len__(self) -> int:
        return self.num_drawn


def test_a_sampler_that_learns_its_length_as_it_begins_has_an_epoch_as_long_as_any() -> None:
    made = long(Drawn(3), least_batches=7)
    assert len(made) == 0
    assert len(list(made)) == len(made) == 9


def test_an_iteration_that_only_reads_ends_with_the_scripts_own_epoch() -> None:
    assert len(list(long(BatchSampler(range(5), 2, drop_last=False), 30, num_trained=0))) == 3


def test_batches_of_which_nobody_can_count_the_number_go_on_for_as_long_as_the_script_trains() -> None:
    class Uncounted(BatchSampler):
        __len__ = None  # type: ignore[assignment]

    made = long(Uncounted(range(5), 2, drop_last=False), least_batches=2, num_trained=4)
    assert len(list(made)) == 12
    with pytest.raises(TypeError):
        len(made)


def test_batches_begin_again_and_their_sizes_are_noted_where_somebody_takes_them() -> None:
    made = long(BatchSampler(range(5), 2, drop_last=False), 6)
    assert list(made) == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4]] and not made.latest_sizes
    made = long(BatchSampler(range(5), 2, drop_last=False), 6)
    made.notes_sizes = True
    assert list(made) == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4]]
    assert list(made.latest_sizes) == [2, 2, 1, 2, 2, 1]
    assert (made.batch_size, made.drop_last, list(made.sampler)) == (2, False, [0, 1, 2, 3, 4])


def test_one_over_another_is_over_the_scripts_own() -> None:
    inner = Buckets(range(4), 2)
    assert long(long(inner)).inner is inner
    assert long(inner).width == 2


@pytest.mark.parametrize(
    ("inner", "arguments", "values"),
    [
        (BatchSampler(range(4), 2, drop_last=False), (range(9), 3), {"drop_last": True}),
        (Buckets(range(4), 2), (range(9), 3), {}),
    ],
    ids=["torch's", "the script's"],
)
def test_another_one_of_its_type_is_a_batch_sampler_of_the_scripts_own(inner, arguments, values) -> None:
    """Lightning makes one so, with the sampler of its rank."""
    other = type(long(inner))(*arguments, **values)
    assert type(other) is type(inner)
    assert list(other) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_what_is_set_on_it_is_not_seen_by_who_listens_to_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning does, to set the same on what it makes in its place, where the script's sampler must not come back."""
    heard: list[str] = []
    monkeypatch.setattr(BatchSampler, "__setattr__", lambda _, name, value: heard.append(name), raising=False)
    long(BatchSampler.__new__(BatchSampler))
    assert heard == []


def test_an_attribute_that_is_asked_for_before_it_is_made_is_missing_as_of_any_object() -> None:
    assert not hasattr(LongBatchSampler.__new__(LongBatchSampler), "never_set")


class Kind(enum.Enum):
    FIRST = 1


class Sample:
    """One that refers to itself."""

    def __init__(self, kind: Kind) -> None:
        self.image, self.kind, self.whole = torch.zeros(2, 3), kind, self


def test_a_batch_may_hold_what_refers_to_itself_and_members_of_enumerations() -> None:
    sample = Sample(Kind.FIRST)
    assert [tensor is sample.image for tensor in tensors_of({"kind": Kind.FIRST, "sample": sample})] == [True]
