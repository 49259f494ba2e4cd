"""Batches of a foreign loader, cached and real, as they are noted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from autotune.trial.loader.foreign_batches import ForeignBatches


class PipelineIterator:
    """A loader of SPDL's shape; each batch holds its number."""

    def __init__(self) -> None:
        self.num_given = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        self.num_given += 1
        return torch.full((4, 2), float(self.num_given))


class Device:
    """Notes what a meter with a device's clock is told."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.noted: list[tuple[int, str]] = []

    def begin_delivery(self) -> str:
        self.marks.append(f"mark {len(self.marks)}")
        return self.marks[-1]

    def foreign_delivered(self, num_samples: int, began: str) -> None:
        self.noted.append((num_samples, began))


def test_cached_batches_are_timed_by_the_devices_clock_and_real_ones_by_the_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Iterated(PipelineIterator):
        pass

    monkeypatch.setitem(sys.modules, "spdl.pipeline._pipeline", SimpleNamespace(PipelineIterator=Iterated))
    device, waits = Device(), list[tuple[int, float]]()
    is_cached = True
    foreign = ForeignBatches(
        lambda size, wait_s: waits.append((size, wait_s)),
        cached=lambda: device if is_cached else None,
        num_backwards=count().__next__,
    )
    foreign.attach(threading.get_ident())
    loader = Iterated()
    given = [float(next(loader)[0, 0]) for _ in range(3)]
    assert given == [1.0, 1.0, 1.0] and loader.num_given == 1
    assert device.noted == [(4, "mark 0"), (4, "mark 1"), (4, "mark 2")] and not waits
    is_cached = False
    assert float(next(loader)[0, 0]) == 2.0
    assert len(device.noted) == 3 and len(waits) == 1 and waits[0][0] == 4 and waits[0][1] >= 0.0
    assert foreign.num_samples == 16
