"""Loaders beside the training loader: cached batches before the window, real ones in it, and no longer iterations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.trial.loader.loaders import Loaders
from autotune.trial.loader.loaders_beside import MOST_TAKEN, LoadersBeside
from autotune.trial.torch.patching import unwrap_all


class Meter:
    """A meter before or in the window."""

    def __init__(self) -> None:
        self.uses_cached_batch = True
        self.counters = SimpleNamespace(wait_s=0.0)
        self.num_handed_out = 0

    def begin_delivery(self) -> float:
        return 0.0

    def handed_out(self, began: float) -> None:
        self.num_handed_out += 1


class Script:
    """A script's loader of four batches of two, beside a training loader that is not shown."""

    def __init__(self) -> None:
        self.steps: Any = SimpleNamespace(num_backwards=0)
        self.meter: Any = Meter()
        self.beside = LoadersBeside(self.steps, lambda: self.meter)
        self.loaders = Loaders()
        self.loaders.taker = self.beside.take
        self.loaders.iterates = self.beside.iterates
        self.loaders.iterated = self.beside.iterated
        self.loaders.install()
        self.loader: Any = DataLoader(TensorDataset(torch.arange(8)), batch_size=2)

    def step(self, iterator: Any) -> list[int]:
        """The samples of a batch, which is trained on."""
        (samples,) = next(iterator)
        self.steps.num_backwards += 1
        return [int(sample) for sample in samples]


@pytest.fixture
def script() -> Any:
    made = Script()
    yield made
    unwrap_all()


def test_before_the_window_the_first_batch_comes_again_up_to_the_promised_length(script: Script) -> None:
    iterator = iter(script.loader)
    assert [script.step(iterator) for _ in range(4)] == [[0, 1]] * 4
    with pytest.raises(StopIteration):
        next(iterator)
    assert script.meter.num_handed_out == 4
    assert script.meter.counters.wait_s == 0.0


def test_in_the_window_batches_are_real_and_waits_count(script: Script) -> None:
    iterator = iter(script.loader)
    script.step(iterator)
    assert script.beside.open_gates()
    script.meter.uses_cached_batch = False
    assert [script.step(iterator) for _ in range(3)] == [[2, 3], [4, 5], [6, 7]]
    assert script.meter.counters.wait_s > 0.0


def test_a_script_that_only_reads_gets_every_batch(script: Script) -> None:
    script.loader = DataLoader(TensorDataset(torch.arange(40)), batch_size=2)
    read = [int(samples[0]) for (samples,) in iter(script.loader)]
    assert read[:MOST_TAKEN] == [0] * MOST_TAKEN
    assert read[MOST_TAKEN:] == list(range(2 * MOST_TAKEN, 40, 2)), "each cached batch took the place of a real one"


def test_a_further_iteration_from_outside_is_no_longer_than_the_loader_says(script: Script) -> None:
    script.meter.uses_cached_batch = False
    script.loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2, num_workers=1)
    iterator = iter(script.loader)
    script.step(iterator)
    script.beside.begin_next(script.loaders.end_iteration, num_needed=2)
    assert [script.step(iterator) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_iteration_near_its_end_is_left_as_it_is(script: Script) -> None:
    script.meter.uses_cached_batch = False
    script.loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2, num_workers=1)
    iterator = iter(script.loader)
    script.step(iterator)
    script.beside.begin_next(script.loaders.end_iteration, num_needed=4)
    assert script.step(iterator) == [2, 3]
