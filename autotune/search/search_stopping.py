"""Decides on an early end of a search, and on the finalists. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean

from autotune.model.outcome import Outcome
from autotune.search.bounds import Bounds
from autotune.search.forecast import forecast
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import AT_CEILING_RATIO, Candidate
from autotune.search.prices import Prices
from autotune.settings import GROUP_OF_FIELD, Settings

SAMPLED_STAGE = "sampled"
NEIGHBOUR_STAGE = "neighbour"
AFTER_PLAN = (SAMPLED_STAGE, NEIGHBOUR_STAGE)
"""Stages of trials chosen by their expected gain, after the steps of the plan."""

HANDFUL = 5
"""Sound trials beside the baseline after which an unbeaten baseline is best: the largest usual gains come first."""

NUM_GROUPS = 3
"""Least groups of settings tried before an unbeaten baseline is best: workers and threads alone are not enough."""

WORTH_GOING_ON = 4
"""Expected gain, as a multiple of the noise, above which a search goes on although the baseline is unbeaten below its
ceiling. Less is not enough, because early in a search every job has some expected gain."""

NUM_OUTLOOKS = 4
"""Consecutive trials, including the next, whose average expected gain decides: one noisy trial can overturn all
expectations."""

LITTLE_GAIN = 0.1
"""Least expected gain worth a trial, as a share of the noise. An expected gain is an average: a tenth of the noise is
one chance in fifty of gaining five times the noise, for every trial left. A larger share ends searches sooner, and more
of them before they reach the best."""

LEAST_GAIN_OF_A_MINUTE = 0.01
"""Least expected gain of the next minute worth going on, as a share of the best rate."""

NOISE_OF_LUCK = 2.0
"""Standard deviations of a trial's rate on a noisy machine by which luck may have moved the rate of a finalist."""

NUM_IN_A_MINUTE = 2
"""Number of last expectations, including the next trial's, behind the expected gain of a minute."""

ALIKE_RATIO = 0.01
"""Expected rates in the same hundredth below the best count as alike: less memory decides."""

ALIKE_MEMORY_RATIO = 0.1
"""Step between peaks of memory that differ: two trials of the same settings rarely have the same peak."""

PATIENCE = 24
"""Number of trials after the plan without a gain that ends a search, however large the promised gains. Gains inside the
plan come late, so trials of the plan do not count. `python -m tests.benchmarks.search` shows what these rules save and
cost."""


def budget_spent(max_trials: int) -> str:
    """The sentence about a spent budget of trials."""
    return (
        f"The {max_trials} trials of the budget are spent."
        if max_trials > 1
        else "The single trial of the budget is spent."
    )


def why_nothing_to_gain(
    history: History,
    gain_ratio: Callable[[], float | None],
    *,
    device_is_cpu: bool,
    noise_ratio: float,
    is_worth_a_minute: Callable[[float], bool] = lambda gain_ratio: False,
) -> str | None:
    """The reason why the script's own settings are the best, as one sentence; None while others may be faster.

    Args:
        history: Finished trials.
        gain_ratio: Returns the largest expected gain of a trial, as a share of the best rate, or None when unknown;
            called only if nothing else decides.
        device_is_cpu: True when loader and compute share the cores.
        noise_ratio: Relative noise of rates; a smaller difference is noise.
        is_worth_a_minute: Whether a trial's expected gain makes the next minute worth it; never where time does not
            count.
    """
    baseline, num_others = history.baseline, len(history.sound) - 1
    if baseline is None or not baseline.is_feasible or num_others < HANDFUL:
        return None
    changed = {
        GROUP_OF_FIELD.get(name)
        for trial in history.sound
        for name in trial.settings.differences(history.script_settings)
    }
    if len(changed) < NUM_GROUPS:
        return None
    best_rate, expected = _rate(history.feasible[0]), forecast(history)
    if best_rate > _rate(baseline) * (1 + 2 * noise_ratio) or expected.lead_over(baseline) > noise_ratio:
        return None
    ceiling = Bounds(history, device_is_cpu=device_is_cpu).compute_rate(baseline.settings)
    share = _rate(baseline) / ceiling if ceiling else 0.0
    if share < AT_CEILING_RATIO:
        # On a noisy machine a lucky baseline leads better settings: a handful of trials decides nothing there.
        gain = None if expected.is_noisy else gain_ratio()
        if gain is None or gain > WORTH_GOING_ON * noise_ratio or is_worth_a_minute(gain):
            return None
        return f"None of the {num_others} settings that usually gain most was faster than the script's own."
    reached = f"{min(share, 1.0):.0%}"
    return f"The script's own settings reach {reached} of their compute-only rate, and none of {num_others} was faster."


def is_untried(history: History) -> bool:
    """True when no setting but the script's own was truly measured, so that a limit leaves the search unanswered.

    A handful of trials that raced out are an answer: each was slower than the best beyond doubt.
    """
    own = history.script_settings
    num_others = sum(trial.settings != own for trial in history.sound)
    return num_others < HANDFUL and all(trial.settings == own for trial in history.feasible)


def why_patience_ends(history: History, gain_ratio: float | None, *, noise_ratio: float) -> str | None:
    """The reason to expect no gain above the noise after the plan, as one sentence; None while a gain may come.

    Args:
        history: Finished trials; trials after the plan carry their expected gain.
        gain_ratio: Largest expected gain of a trial, as a share of the best rate; None when unknown.
        noise_ratio: Relative noise of rates; a smaller difference is noise.
    """
    sampled = _sampled(history)
    outlooks = [*(trial.expected_gain_ratio for trial in sampled), gain_ratio][-NUM_OUTLOOKS:]
    gains, little = [gain for gain in outlooks if gain is not None], LITTLE_GAIN * noise_ratio
    if len(gains) == NUM_OUTLOOKS and fmean(gains) < little:
        return f"No further trial is expected to gain {little:.1%}."
    if len(sampled) < PATIENCE:
        return None
    last = {trial.number for trial in sampled[-PATIENCE:]}
    before = max((_rate(trial) for trial in history.feasible if trial.number not in last), default=0.0)
    if not history.feasible or _rate(history.feasible[0]) > before * (1 + noise_ratio):
        return None
    return f"The last {PATIENCE} trials after the plan brought no more than the noise."


def why_a_minute_ends(history: History, candidate: Candidate, prices: Prices) -> str | None:
    """The reason against another minute of trials, as one sentence; None while the minute is worth it, or unknown."""
    gain_ratio = gain_of_a_minute(history, candidate, prices)
    if gain_ratio is None or is_worth_a_minute(gain_ratio):
        return None
    return f"The next minute is expected to gain {max(gain_ratio, 0.0):.1%}, less than {LEAST_GAIN_OF_A_MINUTE:.0%}."


def is_worth_a_minute(gain_ratio: float | None) -> bool:
    """True when the expected gain of a minute of trials, as a share of the best rate, is known and large enough."""
    return gain_ratio is not None and gain_ratio >= LEAST_GAIN_OF_A_MINUTE


def gain_of_a_minute(history: History, candidate: Candidate, prices: Prices) -> float | None:
    """Expected gain of the next minute of trials, as a share of the best rate; None when unknown.

    A mean over the last trials and the candidate: a single expectation follows the noise of the last rate.
    """
    sampled = _sampled(history)
    outlooks = [*(trial.expected_gain_ratio for trial in sampled), candidate.expected_gain_ratio]
    gains = [gain for gain in outlooks[-NUM_IN_A_MINUTE:] if gain is not None]
    if candidate.expected_gain_ratio is None or len(gains) < NUM_IN_A_MINUTE:
        return None
    return prices.per_minute(fmean(gains), candidate.settings)


def finalists(
    history: History,
    expected: Mapping[Settings, float] | None = None,
    *,
    noise_ratio: float,
    extra_noise_ratio: float = 0.0,
) -> tuple[FinishedTrial, ...]:
    """Trials that may be the fastest, the fastest first, without the baseline; of alike rates the least memory first.

    A finalist's interval reaches within the noise of the best rate, and its rate is not below the script's own. On a
    noisy machine both limits are lower: luck may lift a trial of the script's own settings above all better
    settings. Raced-out trials and memory variants of the winner are left out. Trials that thrashed at the cap are left
    out if a calm trial beats the script's own settings: each retry of the allocator may be a crash in a longer run.

    Args:
        history: Finished trials.
        expected: Expected rate of every feasible trial in a second measurement; the measured rate by default. Among
            many noisy trials the luckiest has the highest measured rate, and may push out the fastest.
        noise_ratio: Relative noise of rates; a smaller difference is noise.
        extra_noise_ratio: Standard deviation of a trial's rate beyond that of a quiet machine.
    """
    slack = 1 + NOISE_OF_LUCK * extra_noise_ratio
    rates = expected or {trial.settings: _rate(trial) for trial in history.feasible}
    highest = max((rates[trial.settings] for trial in history.feasible), default=0.0)

    def order(trial: FinishedTrial) -> tuple[float, float, float]:
        rate = rates[trial.settings]
        level = math.floor((1 - rate / highest) / ALIKE_RATIO) if highest > 0 else 0
        peak_bytes = trial.peak_memory_bytes
        step = math.floor(math.log(peak_bytes) / math.log1p(ALIKE_MEMORY_RATIO)) if peak_bytes else math.inf
        return level, step, -rate

    candidates = tuple(sorted(history.feasible, key=order))
    script_rate = rates.get(history.script_settings, 0.0)
    calm = tuple(trial for trial in candidates if not trial.is_near_cap)
    if any(trial.settings != history.script_settings and rates[trial.settings] > script_rate for trial in calm):
        candidates = calm
    best = next(iter(candidates), None)
    if best is None:
        return ()
    least = rates[best.settings] * (1 - noise_ratio)
    return tuple(
        trial
        for trial in candidates
        if trial.outcome is Outcome.OK
        and trial.settings != history.script_settings
        and rates[trial.settings] * slack >= script_rate
        and rates[trial.settings] * max(1 + max(trial.half_width_ratio or 0.0, noise_ratio), slack) >= least
    )


def _sampled(history: History) -> list[FinishedTrial]:
    """Trials after the plan and after the latest finals: finals without a gain refute the expectations before them."""
    return [trial for trial in history.trials if trial.stage in AFTER_PLAN and trial.number > history.decided_until]


def _rate(trial: FinishedTrial) -> float:
    return trial.samples_per_second or 0.0
