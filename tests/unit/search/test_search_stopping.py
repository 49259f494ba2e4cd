"""When a search may end before its budget is spent."""

from __future__ import annotations

from dataclasses import replace

from autotune.model.outcome import Outcome
from autotune.search.history import FinishedTrial, History
from autotune.search.search_stopping import (
    HANDFUL,
    NUM_OUTLOOKS,
    PATIENCE,
    SAMPLED_STAGE,
    finalists,
    is_worth_a_minute,
    why_nothing_to_gain,
    why_patience_ends,
)
from autotune.settings import Settings
from tests.unit.search.test_forecast import trial

OWN = Settings(num_workers=2, batch_size=32)


def others(rate: float, num: int) -> list[FinishedTrial]:
    """Other workers, formats and micro-batches, and more of the like."""
    changes = [{"num_workers": 4}, {"precision": "bf16"}, {"batch_size": 16}]
    changes += [{"prefetch_factor": n + 3} for n in range(max(0, num - 3))]
    return [trial(n, replace(OWN, **one), rate, compute=110.0) for n, one in enumerate(changes[:num], start=1)]


def nothing_to_gain(baseline: FinishedTrial, *more: FinishedTrial, gain: float | None = 0.0) -> str | None:
    return why_nothing_to_gain(History([baseline, *more], OWN), lambda: gain, device_is_cpu=False, noise_ratio=0.02)


def little_is_expected(*gains: float | None) -> str | None:
    """After a baseline and trials of which all but the last gain was expected; that is the next one's."""
    sampled = [replace(one, stage=SAMPLED_STAGE) for one in others(90.0, len(gains) - 1)]
    known = [replace(one, expected_gain_ratio=gain) for one, gain in zip(sampled, gains, strict=False)]
    return why_patience_ends(History([trial(0, OWN), *known], OWN), gains[-1], noise_ratio=0.02)


def test_a_baseline_at_its_ceiling_is_said_to_be_so_after_a_handful_of_trials():
    baseline = trial(0, OWN, 109.0, compute=110.0)
    assert nothing_to_gain(baseline, *others(100.0, HANDFUL - 1)) is None
    assert "99% of their compute-only rate" in nothing_to_gain(baseline, *others(100.0, HANDFUL))


def test_a_baseline_below_its_ceiling_is_not_said_to_be_at_it():
    reason = nothing_to_gain(trial(0, OWN, 80.0, compute=110.0), *others(70.0, HANDFUL))
    assert reason == f"None of the {HANDFUL} settings that usually gain most was faster than the script's own."


def test_while_something_is_faster_than_the_baseline_the_search_goes_on():
    faster = trial(9, replace(OWN, num_workers=4), 120.0, compute=130.0)
    assert nothing_to_gain(trial(0, OWN, 100.0, compute=102.0), *others(95.0, HANDFUL), faster) is None


def test_trials_of_the_loader_alone_say_nothing_of_the_rest():
    loaders = [trial(n, replace(OWN, num_workers=n + 2), 100.0, compute=110.0) for n in range(1, HANDFUL + 1)]
    assert nothing_to_gain(trial(0, OWN, 109.0, compute=110.0), *loaders) is None


def test_one_that_was_measured_clearly_faster_keeps_the_search_going_however_it_is_forecast():
    lucky = trial(9, replace(OWN, prefetch_factor=9), 106.0, compute=110.0)
    assert nothing_to_gain(trial(0, OWN, 100.0, compute=110.0), *others(100.0, HANDFUL), lucky) is None


def test_nothing_is_said_of_a_baseline_below_its_ceiling_while_much_more_than_the_noise_is_expected():
    baseline, slower = trial(0, OWN, 80.0, compute=110.0), others(70.0, HANDFUL)
    assert nothing_to_gain(baseline, *slower, gain=0.09) is None
    assert nothing_to_gain(baseline, *slower, gain=None) is None
    assert nothing_to_gain(baseline, *slower, gain=0.07) is not None


def test_on_a_noisy_machine_no_handful_tells_that_a_baseline_below_its_ceiling_is_the_best():
    baseline, slower = trial(0, OWN, 80.0, compute=110.0), others(70.0, HANDFUL)
    rates = [110.0, 140.0, 90.0, 60.0, 130.0]
    noisy = [replace(one, compute_samples_per_second=rate) for one, rate in zip(slower, rates, strict=True)]
    assert nothing_to_gain(baseline, *slower) is not None
    assert nothing_to_gain(baseline, *noisy) is None


def test_a_search_ends_when_trials_in_a_row_are_expected_to_gain_a_fraction_of_the_noise():
    little = [0.001] * NUM_OUTLOOKS
    assert little_is_expected(*little) == "No further trial is expected to gain 0.2%."
    assert little_is_expected(0.03, *little) is not None
    assert little_is_expected(*little, 0.03) is None


def test_expectations_from_before_the_latest_finals_do_not_end_a_search():
    sampled = [replace(one, stage=SAMPLED_STAGE, expected_gain_ratio=0.001) for one in others(90.0, NUM_OUTLOOKS)]
    for decided_until, is_over in ((-1, True), (len(sampled), False)):
        history = History([trial(0, OWN), *sampled], OWN, decided_until=decided_until)
        assert (why_patience_ends(history, 0.001, noise_ratio=0.02) is not None) == is_over


def test_one_look_at_what_may_come_does_not_end_a_search():
    assert little_is_expected(0.0) is None
    assert little_is_expected(*[0.01] * (NUM_OUTLOOKS - 1), 0.0) is None


def test_what_nothing_tells_of_is_not_taken_for_little():
    assert little_is_expected(*[0.0] * (NUM_OUTLOOKS - 1), None) is None
    assert little_is_expected(*[None] * (NUM_OUTLOOKS - 1), 0.0) is None


def test_who_may_win_is_judged_by_what_to_expect_rather_than_by_one_lucky_measurement():
    lucky, steady = trial(1, replace(OWN, num_workers=4), 130.0), trial(2, replace(OWN, num_workers=8), 110.0)
    history = History([trial(0, OWN, 100.0), lucky, steady], OWN)
    assert finalists(history, noise_ratio=0.02) == (lucky,)
    expected = {OWN: 100.0, lucky.settings: 112.0, steady.settings: 110.0}
    assert finalists(history, expected, noise_ratio=0.02) == (lucky, steady)


def test_a_search_ends_when_its_last_trials_after_the_plan_brought_nothing_whatever_they_promised():
    after = [replace(one, stage=SAMPLED_STAGE, expected_gain_ratio=0.1) for one in others(90.0, PATIENCE)]

    def reason(*trials: FinishedTrial) -> str | None:
        return why_patience_ends(History([trial(0, OWN, 100.0), *trials], OWN), 0.1, noise_ratio=0.02)

    assert reason(*after[:-1]) is None
    assert f"last {PATIENCE} trials" in reason(*after)
    assert reason(*after[:-1], replace(after[-1], samples_per_second=110.0)) is None


def test_of_alike_rates_the_least_memory_comes_first_only_if_a_tenth_is_saved():
    fast, lean = trial(1, replace(OWN, num_workers=4), 120.0), trial(2, replace(OWN, num_workers=6), 119.5)
    for peak_share, first in ((0.99, fast), (0.8, replace(lean, peak_memory_bytes=0))):
        lean = replace(lean, peak_memory_bytes=round(peak_share * (fast.peak_memory_bytes or 0)))
        found = finalists(History([trial(0, OWN), fast, lean], OWN), noise_ratio=0.02)
        assert found[0].number == first.number


def test_what_is_slower_than_the_scripts_own_settings_is_no_finalist_however_near():
    slower, faster = trial(1, replace(OWN, num_workers=4), 99.0), trial(2, replace(OWN, num_workers=8), 101.0)
    assert finalists(History([trial(0, OWN, 100.0), slower, faster], OWN), noise_ratio=0.02) == (faster,)
    assert finalists(History([trial(0, OWN, outcome=Outcome.OUT_OF_MEMORY), slower], OWN), noise_ratio=0.02) == (
        slower,
    )


def test_on_a_noisy_machine_a_lucky_baseline_keeps_no_settings_out_of_the_finals():
    slower, far = trial(1, replace(OWN, num_workers=4), 85.0), trial(2, replace(OWN, num_workers=8), 50.0)
    history = History([trial(0, OWN, 100.0), slower, far], OWN)
    assert finalists(history, noise_ratio=0.02) == ()
    assert finalists(history, noise_ratio=0.02, extra_noise_ratio=0.1) == (slower,)


def test_a_handful_of_trials_decides_nothing_while_the_next_minute_is_worth_it():
    baseline = History([trial(0, OWN, 80.0, compute=110.0), *others(70.0, HANDFUL)], OWN)

    def reason(per_trial: float) -> str | None:
        return why_nothing_to_gain(
            baseline,
            lambda: 0.001,
            device_is_cpu=False,
            noise_ratio=0.02,
            is_worth_a_minute=lambda gain: is_worth_a_minute(gain * 60 / per_trial),
        )

    assert reason(3.0) is None
    assert reason(30.0) is not None
