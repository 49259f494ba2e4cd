import math

import pytest

from autotune.measure.bottleneck import BottleneckKind, diagnose


def kind_of(rate, compute_rate, data_wait_fraction, *, device_is_cpu=False, busy=None):
    return diagnose(rate, compute_rate, data_wait_fraction, device_is_cpu=device_is_cpu, device_busy_fraction=busy).kind


def test_the_figures_are_handed_on():
    bottleneck = diagnose(30.0, 120.0, 0.75, device_is_cpu=False)
    assert bottleneck.kind is BottleneckKind.LOADER
    assert bottleneck.data_wait_fraction == 0.75
    assert bottleneck.ceiling_samples_per_second == 120.0
    assert bottleneck.ceiling_fraction == pytest.approx(0.25)


def test_without_a_ceiling_there_is_no_fraction_of_it():
    bottleneck = diagnose(30.0, None, 0.5, device_is_cpu=False)
    assert (bottleneck.ceiling_samples_per_second, bottleneck.ceiling_fraction) == (None, None)
    assert bottleneck.kind is BottleneckKind.LOADER


@pytest.mark.parametrize("device_is_cpu", [False, True])
@pytest.mark.parametrize(("wait", "fraction"), [(0.75, 0.25), (0.50, 0.50), (0.21, 0.80), (0.1, 0.89)])
def test_a_wait_that_explains_the_loss_is_the_loader(wait, fraction, device_is_cpu):
    assert kind_of(100 * fraction, 100.0, wait, device_is_cpu=device_is_cpu) is BottleneckKind.LOADER


@pytest.mark.parametrize(("wait", "fraction"), [(0.06, 0.74), (0.06, 0.35), (0.12, 0.35), (0.0, 0.85)])
def test_a_loss_that_no_wait_explains_is_contention_on_a_cpu(wait, fraction):
    assert kind_of(100 * fraction, 100.0, wait, device_is_cpu=True) is BottleneckKind.CPU_CONTENTION


def test_copying_to_an_accelerator_is_not_taken_for_contention():
    assert kind_of(85.0, 100.0, 0.0, device_is_cpu=True) is BottleneckKind.CPU_CONTENTION
    assert kind_of(85.0, 100.0, 0.0) is BottleneckKind.UNKNOWN
    assert kind_of(70.0, 100.0, 0.0) is BottleneckKind.CPU_CONTENTION


def test_a_loss_of_less_than_twice_the_wait_is_the_loader():
    assert kind_of(50.0, 100.0, 0.3, device_is_cpu=True) is BottleneckKind.LOADER
    assert kind_of(35.0, 100.0, 0.3, device_is_cpu=True) is BottleneckKind.CPU_CONTENTION


@pytest.mark.parametrize("fraction", [0.92, 0.95, 1.0, 1.01])
@pytest.mark.parametrize("device_is_cpu", [False, True])
def test_a_rate_at_its_ceiling_is_compute(fraction, device_is_cpu):
    assert kind_of(100 * fraction, 100.0, 0.03, device_is_cpu=device_is_cpu) is BottleneckKind.COMPUTE


def test_a_noticeable_wait_at_the_ceiling_is_compute():
    """With a wait of 5 % at 92 % of the rate without a loader, a script was said to be bound by its loader."""
    assert kind_of(92.0, 100.0, 0.05) is BottleneckKind.COMPUTE
    assert kind_of(89.0, 100.0, 0.06) is BottleneckKind.LOADER
    assert kind_of(91.0, 100.0, 0.19) is BottleneckKind.LOADER


def test_an_idle_device_without_a_wait_is_held_up_by_the_host():
    assert kind_of(100.0, None, 0.02, busy=0.4) is BottleneckKind.HOST
    assert kind_of(98.0, 100.0, 0.02, busy=0.4) is BottleneckKind.HOST
    assert kind_of(98.0, 100.0, 0.02, busy=0.6) is BottleneckKind.COMPUTE


def test_an_idle_device_that_waits_for_data_is_held_up_by_the_loader():
    assert kind_of(40.0, 100.0, 0.55, busy=0.4) is BottleneckKind.LOADER


def test_the_utilisation_of_a_device_says_nothing_on_a_cpu():
    assert kind_of(98.0, 100.0, 0.02, device_is_cpu=True, busy=0.0) is BottleneckKind.COMPUTE


def test_a_small_wait_without_a_ceiling_is_unknown():
    assert kind_of(100.0, None, 0.1) is BottleneckKind.UNKNOWN
    assert kind_of(100.0, None, 0.0, busy=0.9) is BottleneckKind.UNKNOWN


@pytest.mark.parametrize(
    ("arguments", "busy", "name"),
    [
        ((0.0, 1.0, 0.1), None, "rate"),
        ((math.nan, 1.0, 0.1), None, "rate"),
        ((1.0, 0.0, 0.1), None, "compute_rate"),
        ((1.0, math.inf, 0.1), None, "compute_rate"),
        ((1.0, 1.0, 1.1), None, "data_wait_fraction"),
        ((1.0, 1.0, math.nan), None, "data_wait_fraction"),
        ((1.0, 1.0, 0.1), 40.0, "device_busy_fraction"),
    ],
)
def test_impossible_figures_are_refused(arguments, busy, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        diagnose(*arguments, device_is_cpu=False, device_busy_fraction=busy)
