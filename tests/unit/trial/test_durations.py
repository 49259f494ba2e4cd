"""Parts of a trial add up to it, with or without a device to initialize."""

from __future__ import annotations

import pytest
import torch

from autotune.measure.block import Phase
from autotune.trial.meter import durations
from autotune.trial.meter.durations import PartTimes


class Clock:
    """Stands in for the module of the same name."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(durations, "time", clock)
    return clock


def test_the_parts_lie_end_to_end(clock: Clock) -> None:
    times = PartTimes(asked_at=1.0, ready_at=1.5, attached_at=4.0)
    clock.now = 20.0
    parts = times.until_now({Phase.WARMUP: 6.0, Phase.COMPUTE: 7.0, Phase.WINDOW: 9.0})
    assert parts == {
        "start": 0.5,
        "imports": 2.5,
        "preparation": 2.0,
        "warm_up": 1.0,
        "compute": 2.0,
        "window": 11.0,
    }


def test_initializing_the_device_is_taken_out_of_the_part_that_it_fell_into(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def initialize() -> str:
        clock.now += 3.0
        return "done"

    monkeypatch.setattr(torch.cuda, "_lazy_init", initialize)
    times = PartTimes(asked_at=0.0, ready_at=1.0, attached_at=2.0)
    times.install()
    clock.now = 5.0
    # Loaded by name on purpose: torch itself looks it up in this way.
    assert torch.cuda._lazy_init() == "done" and torch.cuda._lazy_init is initialize  # type: ignore[attr-defined]
    clock.now = 20.0
    parts = times.until_now({Phase.WARMUP: 9.0})
    assert parts == {"start": 1.0, "imports": 1.0, "preparation": 4.0, "warm_up": 11.0, "device": 3.0}
    assert sum(parts.values()) == 20.0
