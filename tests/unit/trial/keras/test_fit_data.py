"""The data of `fit`: its kind and sizes, and the count of the batches that a training function takes."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from autotune.model.keras_facts import DataKind
from autotune.settings.fit_arrays import batch_size_in, samples_in
from autotune.trial.keras.fit_data import BatchFeed, batches_in, kind_of

X = numpy.zeros((100, 3))


class PyDataset:
    workers, use_multiprocessing, max_queue_size = 1, False, 10

    def __len__(self) -> int:
        return 7


class TfDataset:
    element_spec = None

    def __init__(self, count: int) -> None:
        self.count = count

    def cardinality(self) -> int:
        return self.count


def batches() -> Any:
    yield X[:10]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (X, DataKind.ARRAYS),
        ([X, X], DataKind.ARRAYS),
        ({"a": X}, DataKind.ARRAYS),
        (PyDataset(), DataKind.PY_DATASET),
        (TfDataset(5), DataKind.TF_DATA),
        (batches(), DataKind.GENERATOR),
        (None, DataKind.OTHER),
    ],
)
def test_the_kind_of_data_is_known_without_an_engine(data: Any, kind: DataKind) -> None:
    assert kind_of({"x": data}) is kind


@pytest.mark.parametrize(
    ("fit", "batch_size", "num_batches", "num_samples"),
    [
        ({"x": X}, 32, 4, 100),
        ({"x": X, "batch_size": 16}, 16, 7, 100),
        ({"x": X, "batch_size": 16, "validation_split": 0.2}, 16, 5, 80),
        ({"x": X, "steps_per_epoch": 10}, 10, 10, 100),
        ({"x": PyDataset()}, None, 7, None),
        ({"x": TfDataset(5)}, None, 5, None),
        ({"x": TfDataset(-2)}, None, None, None),
        ({"x": TfDataset(-1), "steps_per_epoch": 3}, None, 3, None),
    ],
)
def test_the_sizes_are_those_that_keras_makes(
    fit: dict[str, Any], batch_size: int | None, num_batches: int | None, num_samples: int | None
) -> None:
    assert (batch_size_in(fit), batches_in(fit), samples_in(fit)) == (batch_size, num_batches, num_samples)


def test_batches_of_an_iterator_are_counted_with_their_samples() -> None:
    feed = BatchFeed()
    state, iterator = feed.given(("state", iter([(X[:10], X[:10]), (X[:4], X[:4])])))
    assert state == "state"
    assert [len(batch[0]) for batch in iterator] == [10, 4]
    assert (feed.taken.num_batches, feed.taken.num_samples) == (2, 14.0)
    assert feed.taken.wait_s >= 0.0


def test_the_cached_batch_takes_the_place_of_all_until_it_is_dropped() -> None:
    feed, is_cached = BatchFeed(), True
    feed.uses_cache = lambda: is_cached
    source = iter([X[:10], X[:5]])
    first = next(feed.given((source,))[0])
    assert next(feed.given((source,))[0]) is first
    assert feed.taken.num_samples == 10
    is_cached = False
    feed.drop()
    assert len(next(feed.given((source,))[0])) == 5


def test_a_list_of_batches_is_counted_with_the_loops_wait() -> None:
    feed = BatchFeed()
    feed.list_wait_s = 0.5
    feed.given(([X[:8], X[:8]],))
    assert (feed.taken.num_batches, feed.taken.num_samples, feed.taken.wait_s) == (2, 16.0, 0.5)
    feed.given(([X[:8]],))
    assert feed.taken.wait_s == 0.0


class TfIterator:
    element_spec = "spec"

    def __init__(self) -> None:
        self.num_taken = 0

    def __next__(self) -> Any:
        self.num_taken += 1
        return X[:10]


def test_the_last_call_of_an_epoch_holds_what_is_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """tf.data is read by the compiled step itself: 7 batches of 10 in calls of 4, 65 samples in all."""
    feed, cached = BatchFeed(), [True]
    monkeypatch.setattr("autotune.trial.keras.fit_data.repeated", lambda batch, spec: iter([batch]))
    feed.uses_cache = lambda: cached[0]
    feed.steps_per_call, feed.epoch_batches, feed.epoch_samples = 4, 7, 65
    iterator = TfIterator()
    feed.given((iterator,))
    assert (feed.taken.num_batches, feed.taken.num_samples) == (4, 40.0)
    cached[0] = False
    feed.epoch_begins()
    assert feed.given((iterator,)) == (iterator,)
    assert (feed.taken.num_batches, feed.taken.num_samples) == (4, 40.0)
    feed.given((iterator,))
    assert (feed.taken.num_batches, feed.taken.num_samples) == (3, 25.0)
    assert iterator.num_taken == 1


def test_an_iterator_is_kept_for_a_diagnosis_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    for keeps in (False, True):
        feed, iterator = BatchFeed(), TfIterator()
        feed.keeps_iterator = keeps
        feed.given((iterator,))
        feed.epoch_begins()
        kept.append(feed.iterator is iterator)
    assert kept == [False, True]


def test_the_one_batch_fills_every_call_whatever_is_left_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = BatchFeed()
    monkeypatch.setattr("autotune.trial.keras.fit_data.repeated", lambda batch, spec: iter([batch]))
    feed.uses_cache = lambda: True
    feed.steps_per_call, feed.epoch_batches = 4, 5
    for _ in range(2):
        feed.given((TfIterator(),))
        assert (feed.taken.num_batches, feed.taken.num_samples) == (4, 40.0)


def test_data_that_no_iterator_can_repeat_stays_real(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = BatchFeed()
    monkeypatch.setattr("autotune.trial.keras.fit_data.repeated", lambda batch, spec: None)
    feed.uses_cache = lambda: True
    iterator = TfIterator()
    assert feed.given((iterator,)) == (iterator,)
    assert not feed.can_repeat
    assert feed.is_read_unseen
