"""Times of copies in other number formats, on a clock that goes wrong."""

from __future__ import annotations

import pytest
import torch

from autotune.settings import Precision
from autotune.trial.observing import timed_copies
from autotune.trial.observing.timed_copies import MAX_ATTEMPTS, LayerUses, format_ratios


class WrongClock:
    """A clock on which own runs take 2 ms and runs under autocast as long as `readings` say, one after the other."""

    def __init__(self, *readings: float) -> None:
        self.readings, self.num_read = list(readings), 0

    def mark(self) -> bool:
        return True

    def finish(self) -> None: ...

    def release(self, mark: bool) -> None: ...

    def seconds(self, start: bool, end: bool) -> float:
        self.num_read += 1
        return self.readings[(self.num_read - 1) % len(self.readings)]


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> LayerUses:
    monkeypatch.setattr(timed_copies, "LIMIT_S", 0.0)
    monkeypatch.setattr(timed_copies, "LEAST_RUNS", 1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    found = LayerUses([model])
    model(torch.randn(2, 4))
    found.detach()
    return found


def ratios(uses: LayerUses, clock: WrongClock) -> dict[Precision, float]:
    found = format_ratios(uses, clock, is_cuda=False, is_autocast=False)  # type: ignore[arg-type]
    return {ratio.precision: ratio.ratio for ratio in found}


def test_a_ratio_that_no_device_reaches_is_measured_again(uses: LayerUses) -> None:
    clock = WrongClock(0.002, 0.000007, 0.002, 0.001)  # 286 times as fast, then 2 times
    assert ratios(uses, clock) == {Precision.BF16: 2.0}
    assert clock.num_read == 4


def test_a_ratio_that_stays_impossible_is_no_figure_at_all(uses: LayerUses) -> None:
    clock = WrongClock(0.002, 0.000007)
    assert ratios(uses, clock) == {}
    assert clock.num_read == 2 * MAX_ATTEMPTS


def test_a_usual_ratio_is_measured_once(uses: LayerUses) -> None:
    clock = WrongClock(0.002, 0.0005)
    assert ratios(uses, clock) == {Precision.BF16: 4.0}
    assert clock.num_read == 2
