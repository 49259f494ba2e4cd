"""The stages of a tf.data dataset, from a stand-in for the statistics of tf.data."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.model.observation import DatasetStage
from autotune.trial.keras.dataset_stages import stages_of


def node(
    name: str,
    busy_ns: int,
    *inputs: int,
    num_elements: int = 10,
    parallelism: float | None = None,
    ratio: float = 1.0,
) -> Any:
    """A node; the ratio is of elements taken to elements given, 0 if unknown."""
    parameters = [] if parallelism is None else [SimpleNamespace(name="parallelism", value=parallelism)]
    return SimpleNamespace(
        name=name,
        processing_time=busy_ns,
        inputs=inputs,
        num_elements=num_elements,
        parameters=parameters,
        ratio=ratio,
    )


def tensorflow_with(model: Any) -> Any:
    return SimpleNamespace(data=SimpleNamespace(experimental=SimpleNamespace(get_model_proto=model)))


def test_stages_come_slowest_first_and_share_their_work_among_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {
        1: node("Prefetch", 0, 2),
        2: node("BatchV2", 10_000_000, 3, ratio=32),
        3: node("Iterator::ParallelMapV2", 320_000_000, 4, num_elements=320, parallelism=8.0),
    }
    model = SimpleNamespace(nodes=nodes, output=1)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow_with(lambda iterator: model))
    assert stages_of(object()) == (
        DatasetStage(name="ParallelMap", busy_s=0.032, parallelism=8),
        DatasetStage(name="Batch", busy_s=0.001),
    )


@pytest.mark.parametrize("num_batches", [2, 1000])
def test_work_that_fills_buffers_is_on_no_batch(monkeypatch: pytest.MonkeyPatch, num_batches: int) -> None:
    """10,000 samples lie in the shuffle's buffer; a filter, whose ratio tf.data does not know, drops each second."""
    shuffled = num_batches * 32
    taken = shuffled + 10_000
    nodes = {
        1: node("Root", 0, 2, num_elements=num_batches),
        2: node("BatchV2", num_batches * 300_000, 3, num_elements=num_batches, ratio=32),
        3: node("ShuffleV3", taken * 1_000, 4, num_elements=shuffled),
        4: node("Filter", taken * 4_000, 5, num_elements=taken, ratio=0),
        5: node("Map", 2 * taken * 50_000, num_elements=2 * taken),
    }
    model = SimpleNamespace(nodes=nodes, output=1)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow_with(lambda iterator: model))
    busy_s = {stage.name: stage.busy_s for stage in stages_of(object())}
    assert busy_s == pytest.approx({"Map": 64 * 50e-6, "Batch": 300e-6, "Filter": 32 * 4e-6, "Shuffle": 32 * 1e-6})


def test_a_dataset_without_statistics_has_no_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(iterator: object) -> None:
        raise LookupError("autotune is not enabled")

    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow_with(refuse))
    assert stages_of(object()) == ()


def test_an_iterator_that_gave_no_batch_has_no_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SimpleNamespace(nodes={1: node("Map", 5, num_elements=0)}, output=1)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow_with(lambda iterator: model))
    assert stages_of(object()) == ()
