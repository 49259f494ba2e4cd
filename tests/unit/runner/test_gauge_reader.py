"""Rates between two looks, from counts that are made up."""

from __future__ import annotations

import pytest

from autotune.model.gauges import Gauges, TrialPhase
from autotune.runner.gauge_reader import GaugeReader
from autotune.runner.reports import Progress


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def at(num_samples, waited_s, phase=TrialPhase.WINDOW):
    return Progress(num_steps=7, in_window=True, phase=phase, num_samples=num_samples, waited_s=waited_s)


def looks(*progresses, world_size=1, every_s=2.0):
    """The gauges of the last of these looks."""
    clock = Clock()
    reader = GaugeReader(world_size, now=clock)
    for progress in progresses:
        found = reader.read(progress)
        clock.now_s += every_s
    return found


def test_the_first_look_tells_no_rate():
    assert looks(at(64, 0.0)) == Gauges(phase=TrialPhase.WINDOW, num_steps=7)


def test_two_looks_tell_rate_and_wait_between_them():
    found = looks(at(64, 0.5), at(264, 1.0))
    assert (found.samples_per_second, found.data_wait_fraction) == (100.0, 0.25)


def test_the_first_rank_stands_for_all():
    assert looks(at(0, 0.0), at(200, 0.0), world_size=4).samples_per_second == 400.0


def test_cached_batches_and_the_look_across_a_phase_tell_nothing():
    compute = TrialPhase.COMPUTE
    assert looks(at(0, 0.0, compute), at(200, 0.0, compute)).samples_per_second is None
    assert looks(at(0, 0.0, TrialPhase.RAMP), at(200, 0.0)).samples_per_second is None


@pytest.mark.parametrize("num_samples", [-(2**63), 2**63 - 1, 0])
@pytest.mark.parametrize("waited_s", [-9e12, 9e12])
def test_counts_that_cannot_be_are_no_figures(num_samples, waited_s):
    found = looks(at(5, 0.0), at(num_samples, waited_s))
    assert found.samples_per_second is None
    assert 0.0 <= found.data_wait_fraction <= 1.0


def test_a_probe_has_no_phases_beyond_its_start():
    reader = GaugeReader(1, is_probe=True, now=Clock())
    assert reader.read(Progress()).phase is TrialPhase.STARTING
    assert reader.read(at(0, 0.0, TrialPhase.ENDING)).phase is TrialPhase.LEARNING


def test_a_share_is_a_share():
    with pytest.raises(ValueError, match="cpu_fraction"):
        Gauges(phase=TrialPhase.WINDOW, cpu_fraction=1.2)
