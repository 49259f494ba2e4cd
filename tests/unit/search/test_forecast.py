"""What the finished trials let expect of settings that were not tried: their rates, and whether they fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.model.outcome import Outcome
from autotune.search.forecast import Forecast
from autotune.search.history import FinishedTrial, History
from autotune.search.peak_forecast import PeakForecast
from autotune.settings import Settings
from autotune.units import GIB
from tests.benchmarks.search.family import make_space

OWN = Settings(num_workers=2, batch_size=32)
SPACE = make_space(OWN, {"batch_size": (8, 16, 32, 64, 128), "compile": (False, True)}, device_is_cpu=False)
CAP_BYTES = 8 * GIB


def trial(number, settings, rate=100.0, *, compute=None, peak=2.0, wait=None, outcome=Outcome.OK):
    """Peak in GiB; the compute-only rate is a little above the rate unless it is given."""
    return FinishedTrial(
        number=number,
        settings=settings,
        stage="",
        outcome=outcome,
        samples_per_second=rate if outcome.is_complete else None,
        peak_memory_bytes=round(peak * GIB) if outcome.is_complete else None,
        compute_samples_per_second=compute or 1.02 * rate if outcome.is_complete else None,
        data_wait_fraction=wait,
    )


def forecast(*trials: FinishedTrial) -> Forecast:
    return Forecast(History(trials, OWN))


def test_a_larger_micro_batch_promises_more_where_smaller_ones_showed_a_trend():
    sizes = [trial(number, replace(OWN, batch_size=size), 2.0 * size) for number, size in enumerate((8, 16, 32))]
    larger, smaller = (replace(OWN, batch_size=size) for size in (64, 4))
    gains = forecast(*sizes).gains([larger, smaller])
    assert gains[0] > 0.2 > gains[1]


def test_what_helped_beside_one_setting_promises_to_help_beside_another():
    trials = [
        trial(0, OWN, 100.0),
        trial(1, replace(OWN, compile=True), 150.0),
        trial(2, replace(OWN, channels_last=True), 130.0),
        trial(3, replace(OWN, cudnn_benchmark=True), 80.0),
    ]
    both = replace(OWN, compile=True, channels_last=True)
    worse = replace(OWN, compile=True, cudnn_benchmark=True)
    gains = forecast(*trials).gains([both, worse])
    assert gains[0] > 0.1 > gains[1]


def test_a_job_that_reaches_its_compute_only_rate_expects_nothing_of_its_loader():
    fed = [trial(0, OWN, 100.0, compute=100.5), trial(1, replace(OWN, num_workers=3), 100.0, compute=100.0)]
    starved = [trial(0, OWN, 100.0, compute=300.0), trial(1, replace(OWN, num_workers=3), 140.0, compute=300.0)]
    more = replace(OWN, num_workers=4)
    assert forecast(*fed).gains([more])[0] < 0.01 < forecast(*starved).gains([more])[0]


def test_one_lucky_trial_among_many_alike_is_not_believed():
    alike = [trial(n, replace(OWN, prefetch_factor=n), 100.0, compute=101.0) for n in range(1, 9)]
    lucky = trial(9, replace(OWN, prefetch_factor=9), 106.0, compute=101.0)
    faster = trial(10, replace(OWN, compile=True), 104.0, compute=105.0)
    assert forecast(*alike, lucky, faster).fastest([lucky, faster])[0] == faster


def test_the_runs_of_finals_count_as_much_as_trials_each():
    """One lucky trial is half believed; after nine runs at the rate of the script the luck is gone."""
    own, lucky = trial(0, OWN, 100.0, compute=200.0), trial(1, replace(OWN, num_workers=6), 125.0, compute=200.0)
    again = lucky.with_runs([100.0] * 9)
    assert again.num_runs == 10 and again.samples_per_second == pytest.approx(100.0 * 1.25**0.1)
    before, after = (forecast(own, one).rates([lucky])[lucky.settings] for one in (lucky, again))
    assert before > 110 and after < 104
    assert trial(2, OWN, outcome=Outcome.OUT_OF_MEMORY).with_runs([100.0]).samples_per_second is None


def test_a_callable_without_compute_only_rates_is_forecast_by_its_rates_alone():
    trials = [trial(0, OWN, 100.0), trial(1, replace(OWN, num_workers=4), 160.0), trial(2, replace(OWN, compile=True))]
    bare = [replace(one, compute_samples_per_second=None) for one in trials]
    gains = forecast(*bare).gains([replace(OWN, num_workers=5), replace(OWN, num_workers=1)])
    assert gains[0] > gains[1]


def test_trials_that_contradict_each_other_say_that_the_machine_is_noisy():
    rates = (100.0, 125.0, 84.0, 112.0, 79.0, 121.0)
    noisy = [trial(n, replace(OWN, prefetch_factor=n), rate, compute=2 * rate) for n, rate in enumerate(rates, start=1)]
    lucky, other = noisy[1], trial(9, replace(OWN, compile=True), 118.0, compute=236.0)
    expected = forecast(*noisy, other)
    lead = expected.lead_over(noisy[0])
    assert expected.is_noisy
    assert lucky.samples_per_second == 1.25 * noisy[0].samples_per_second
    assert lead < 0.2


def test_what_is_not_known_of_two_settings_alike_is_no_gain_of_one_over_the_other():
    alike = [trial(n, replace(OWN, prefetch_factor=n), 100.0, compute=101.0) for n in (1, 2, 3)]
    gains = forecast(*alike).gains([replace(OWN, prefetch_factor=4), replace(OWN, compile=True)])
    assert gains[0] < 0.005 < gains[1]


def test_switches_that_do_nothing_say_nothing_of_formats_and_compilation():
    names = ("pin_memory", "non_blocking", "channels_last", "cudnn_benchmark")
    idle = [trial(n, replace(OWN, prefetch_factor=n, **{name: True})) for n, name in enumerate(names, start=3)]
    gains = forecast(trial(0, OWN), *idle).gains(
        [replace(OWN, compile=True), replace(OWN, precision="bf16"), replace(OWN, stream_prefetch=True)]
    )
    assert min(gains[:2]) > 3 * gains[2]


def test_what_is_probably_slower_may_still_gain_a_little():
    slower = [trial(n, replace(OWN, batch_size=size), 3.0 * size) for n, size in enumerate((8, 16, 32))]
    gain = forecast(*slower).gains([replace(OWN, batch_size=16, compile=True)])[0]
    assert 0.0 < gain < 0.05


def test_only_what_is_gained_beyond_the_least_counts():
    alike = [trial(n, replace(OWN, prefetch_factor=n), 100.0, compute=101.0) for n in (1, 2, 3)]
    new = [replace(OWN, prefetch_factor=4), replace(OWN, compile=True)]
    every, large = forecast(*alike).gains(new), forecast(*alike).gains(new, least=0.02)
    assert large[0] < 0.1 * every[0]
    assert 0.5 * every[1] < large[1] < every[1]


def test_no_settings_have_no_gains():
    assert forecast(trial(0, OWN)).gains([]) == []


def probability(*trials: FinishedTrial, **changes) -> float:
    return PeakForecast(History(trials, OWN), SPACE, CAP_BYTES).fit_probability(replace(OWN, **changes))


def test_two_micro_batches_tell_how_likely_a_third_fits():
    line = [trial(n, replace(OWN, batch_size=size), peak=1 + size / 16) for n, size in enumerate((16, 32))]
    assert probability(*line, batch_size=64) > 0.99  # 5 GiB
    assert 0.1 < probability(*line, batch_size=112) < 0.9  # 8 GiB
    assert probability(*line, batch_size=128) < 0.05  # 9 GiB


def test_what_needs_no_more_than_what_fitted_fits():
    near = trial(0, replace(OWN, batch_size=64, cudnn_benchmark=True), peak=7.99)
    assert probability(near, batch_size=64, num_workers=9) == 1.0
    assert probability(near, batch_size=64, cudnn_benchmark=True, pin_memory=True) == 1.0


def test_the_parts_that_the_probe_saw_make_a_line_of_one_micro_batch():
    """A trial of nanoGPT with 12 samples took 15.7 GiB, one with 60 did not fit 71."""
    one = History([trial(0, OWN, peak=2.2)], OWN)
    larger, too_large = (replace(OWN, batch_size=size) for size in (112, 128))  # 7.2 and 8.2 GiB of 8
    blind, knowing = (PeakForecast(one, SPACE, CAP_BYTES, fixed) for fixed in (None, 0.2 * GIB))
    assert knowing.fit_probability(larger) > 0.99 > blind.fit_probability(larger)
    assert knowing.fit_probability(too_large) < 0.5 < blind.fit_probability(too_large)


@pytest.mark.parametrize("fixed_bytes", [0.0, 3 * GIB])
def test_an_estimate_beyond_the_measured_peak_counts_for_nothing(fixed_bytes):
    one, larger = History([trial(0, OWN, peak=2.2)], OWN), replace(OWN, batch_size=64)
    blind = PeakForecast(one, SPACE, CAP_BYTES).fit_probability(larger)
    assert PeakForecast(one, SPACE, CAP_BYTES, fixed_bytes).fit_probability(larger) == blind


def test_formats_of_half_the_width_are_likely_to_make_room():
    line = [trial(n, replace(OWN, batch_size=size), peak=1 + size / 16) for n, size in enumerate((16, 32))]
    assert probability(*line, batch_size=128, precision="bf16") > 0.8 > 0.05 > probability(*line, batch_size=128)


def test_segments_that_expand_may_make_room_where_a_micro_batch_did_not_fit():
    line = [trial(n, replace(OWN, batch_size=size), peak=1 + size / 16) for n, size in enumerate((16, 32))]
    failed = [trial(n, replace(OWN, batch_size=112, prefetch_factor=n), outcome=Outcome.OUT_OF_MEMORY) for n in (2, 4)]
    expanding = probability(*line, *failed, batch_size=112, expandable_segments=True)
    assert expanding > 0.2 > probability(*line, *failed, batch_size=112)


def test_a_failure_corrects_what_was_thought_to_fit():
    line = [trial(n, replace(OWN, batch_size=size), peak=1 + size / 16) for n, size in enumerate((16, 32))]
    failed = trial(2, replace(OWN, batch_size=112), outcome=Outcome.OUT_OF_MEMORY)
    assert probability(*line, failed, batch_size=110) < probability(*line, batch_size=110)


@pytest.mark.parametrize("workers", [1, 4])
def test_on_a_cpu_workers_take_memory_too(workers):
    space = make_space(OWN, {"num_workers": (0, 1, 4)}, device_is_cpu=True)
    own = replace(OWN, num_workers=0).canonical(device_is_cpu=True)
    trials = [trial(0, own, peak=4.0), trial(1, replace(OWN, num_workers=1), peak=5.5)]
    peaks = PeakForecast(History(trials, own), space, CAP_BYTES)
    assert (peaks.fit_probability(replace(OWN, num_workers=workers)) > 0.9) == (workers == 1)


def test_without_a_peak_everything_may_fit():
    assert probability(replace(trial(0, OWN), peak_memory_bytes=None), batch_size=128) == 1.0
