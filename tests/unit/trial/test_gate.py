"""The gate, in one process: who waits at it before which batch, and where there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.trial.loader.batch_source import BatchSource
from autotune.trial.loader.gate import Gate, GatedWorkerInit, WorkerGates
from autotune.trial.step.steps import Steps
from autotune.trial.torch import torch_names


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(8))


class CountedGate(Gate):
    """A gate that counts how often somebody waits at it, and lets everybody through."""

    def __init__(self) -> None:
        super().__init__(None, 2, 2)
        self.num_waits = 0

    def wait(self) -> None:
        self.num_waits += 1


@pytest.fixture(autouse=True)
def own_fetchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker does to its process is taken back."""
    for cls in torch_names.fetchers():
        monkeypatch.setattr(cls, "fetch", cls.fetch)


def waits_before_batches(dataset: Any, worker_id: int, *, is_sharded: bool, num_iterations: int = 1) -> list[int]:
    """How often a worker waits before each of its first three batches of each iteration."""
    gate = CountedGate()
    GatedWorkerInit(gate, None, is_sharded=is_sharded)(worker_id)
    waits = []
    for _iteration in range(num_iterations):
        fetcher = torch_names.fetchers()[isinstance(dataset, IterableDataset)](dataset, True, list, False)
        for first in (0, 2, 4):
            before = gate.num_waits
            assert fetcher.fetch([first, first + 1]) == [first, first + 1]
            waits.append(gate.num_waits - before)
    return waits


def test_of_a_dataset_that_is_asked_by_index_the_first_worker_alone_builds_one_batch_at_once() -> None:
    assert waits_before_batches(Rows(), 0, is_sharded=False) == [0, 1, 1]


def test_a_worker_that_goes_on_builds_one_batch_of_every_iteration_at_once() -> None:
    """The script may never have read the iteration before, and then waits for its first batch of all."""
    assert waits_before_batches(Rows(), 0, is_sharded=False, num_iterations=2) == [0, 1, 1] * 2
    assert waits_before_batches(Stream(), 1, is_sharded=True, num_iterations=2) == [0, 1, 1] * 2


def test_its_other_workers_build_nothing() -> None:
    assert waits_before_batches(Rows(), 1, is_sharded=False) == [1, 1, 1]


@pytest.mark.parametrize("worker_id", [0, 1])
def test_of_a_stream_every_worker_builds_one_since_the_first_may_have_none(worker_id: int) -> None:
    assert waits_before_batches(Stream(), worker_id, is_sharded=True) == [0, 1, 1]


def test_the_users_own_initialisation_is_told_its_worker() -> None:
    told: list[int] = []
    GatedWorkerInit(Gate(None, 2, 2), told.append, is_sharded=False)(1)
    assert told == [1]


def begun(loader: DataLoader[Any], *, is_early: bool = True, is_closed: bool = True) -> WorkerGates:
    gates = WorkerGates()
    gates.iteration_begins(loader, is_early=is_early, is_closed=is_closed, has_workers=False)
    return gates


def own_init(worker_id: int) -> None:
    """The script's."""


@pytest.mark.parametrize(("dataset", "is_sharded"), [(Rows(), False), (Stream(), True)], ids=["map", "stream"])
def test_workers_of_either_kind_of_dataset_are_begun_at_a_closed_gate(dataset: Any, is_sharded: bool) -> None:
    loader = DataLoader(dataset, num_workers=2, worker_init_fn=own_init)
    gate = begun(loader).gate
    assert gate is not None and not gate.is_open
    init: Any = loader.worker_init_fn
    assert (init.gate, init.user_init, init.is_sharded) == (gate, own_init, is_sharded)


def test_a_pass_that_only_reads_finds_its_gate_open() -> None:
    gate = begun(DataLoader(Rows(), num_workers=2), is_closed=False).gate
    assert gate is not None and gate.is_open


def test_once_the_clock_runs_the_users_own_initialisation_is_all_there_is() -> None:
    loader = DataLoader(Rows(), num_workers=2, worker_init_fn=own_init)
    begun(loader)
    assert begun(loader, is_early=False).gate is None
    assert loader.worker_init_fn is own_init


def test_an_iteration_that_was_left_lets_its_workers_go_and_the_next_has_a_gate_of_its_own() -> None:
    loader = DataLoader(Rows(), num_workers=2, worker_init_fn=own_init)
    gates = begun(loader)
    left: Any = gates.gate
    gates.iteration_begins(loader, is_early=True, is_closed=True, has_workers=False)
    assert left.is_open
    assert gates.gate not in (None, left) and not gates.gate.is_open
    assert loader.worker_init_fn.user_init is own_init  # type: ignore[union-attr]


@pytest.mark.parametrize("is_closed", [True, False])
def test_workers_that_go_on_finish_what_they_were_asked_for_and_wait_again(is_closed: bool) -> None:
    loader = DataLoader(Rows(), num_workers=2, persistent_workers=True)
    gates, iterator = begun(loader), SimpleNamespace()
    gate: Any = gates.gate
    gates.iteration_begins(loader, is_early=True, is_closed=is_closed, has_workers=True)
    assert gates.gate is gate and gate.is_open
    gates.iteration_began(iterator, is_closed=is_closed)
    assert iterator._autotune_gate is gate
    assert gate.is_open is not is_closed


@pytest.mark.parametrize("moved", ["fetchers", "WORKERS_ITERATOR"])
def test_where_torch_has_moved_what_the_gate_is_built_on_there_is_none_and_the_result_is_marked(
    monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    monkeypatch.setattr(torch_names, moved, tuple if moved == "fetchers" else None)
    loader = DataLoader(Rows(), num_workers=2, worker_init_fn=own_init)
    steps = Steps()
    batch_source = BatchSource(steps, lambda *_: pytest.fail("no meter is asked for"), num_passes_before_training=0)
    steps._wrap_backward(lambda *_: None)(torch.ones(()))  # in this thread
    batch_source._gates, batch_source._num_workers = begun(loader), loader.num_workers
    assert batch_source._gates.gate is None and loader.worker_init_fn is own_init
    assert not batch_source.open_gate()  # what its workers have built is to be drained
    assert batch_source.is_primed


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_queue_that_was_held_back_or_is_none_needs_no_draining(num_workers: int) -> None:
    loader = DataLoader(Rows(), num_workers=num_workers)
    steps = Steps()
    batch_source = BatchSource(steps, lambda *_: pytest.fail("no meter is asked for"), num_passes_before_training=0)
    steps._wrap_backward(lambda *_: None)(torch.ones(()))
    batch_source._gates, batch_source._num_workers = begun(loader), num_workers
    assert batch_source.open_gate()
    assert not batch_source.is_primed
    assert batch_source._gates.gate is None or batch_source._gates.gate.is_open
