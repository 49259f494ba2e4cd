"""A callable as a runner: figures, memory, and whose errors are whose."""

from __future__ import annotations

import pytest

from autotune.lab.function_runner import Measured, OutOfMemoryError, evaluate
from autotune.model.outcome import Outcome
from autotune.settings import Settings
from tests.unit.grids import ok

SETTINGS = Settings(batch_size=64)


def raising(error):
    def function(_settings):
        raise error

    return function


def test_a_number_is_samples_per_second():
    result = evaluate(lambda settings: settings.batch_size, SETTINGS, 100)
    assert (result.outcome, result.start) == (Outcome.OK, "function")
    assert result.measurement.samples_per_second == 64.0
    assert result.measurement.low < 64.0 < result.measurement.high


def test_a_measurement_says_more():
    measured = Measured(
        samples_per_second=10.0, peak_memory_bytes=100, compute_samples_per_second=40.0, data_wait_fraction=0.7
    )
    result = evaluate(lambda _: measured, SETTINGS, 100)
    assert (result.outcome, result.peak_memory_bytes) == (Outcome.OK, 100)
    assert result.measurement.compute_samples_per_second == 40.0
    assert result.measurement.data_wait_fraction == 0.7


def test_a_trials_result_goes_through_as_it_is():
    result = ok(3.0)
    assert evaluate(lambda _: result, SETTINGS, 100) is result


def test_more_than_the_cap_is_over_it_whatever_the_rate():
    result = evaluate(lambda _: Measured(samples_per_second=10.0, peak_memory_bytes=101), SETTINGS, 100)
    assert (result.outcome, result.peak_memory_bytes, result.measurement) == (Outcome.OVER_CAP, 101, None)


class TorchLike:
    class OutOfMemoryError(RuntimeError):
        """As torch's: no MemoryError, and torch is not imported here."""


@pytest.mark.parametrize(
    "function",
    [
        lambda _: Measured(samples_per_second=None),
        raising(MemoryError()),
        raising(OutOfMemoryError()),
        raising(TorchLike.OutOfMemoryError("CUDA out of memory.\nmore")),
    ],
)
def test_running_out_of_memory_is_an_ending(function):
    result = evaluate(function, SETTINGS, 100)
    assert result.outcome is Outcome.OUT_OF_MEMORY
    assert result.reason.endswith("memory.")


def test_what_was_needed_at_least_can_be_said():
    result = evaluate(raising(OutOfMemoryError("Too much.", peak_memory_bytes=7)), SETTINGS, 100)
    assert (result.reason, result.peak_memory_bytes) == ("Too much.", 7)


def test_other_errors_are_their_authors():
    with pytest.raises(ZeroDivisionError):
        evaluate(lambda _: 1 / 0, SETTINGS, 100)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_rates_that_no_training_has_are_refused(rate):
    with pytest.raises(ValueError, match="impossible rate"):
        evaluate(lambda _: rate, SETTINGS, 100)
