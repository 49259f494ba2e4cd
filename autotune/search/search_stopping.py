"""When a search may end before its budget is spent, and which trials may still win. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from autotune.model.outcome import Outcome
from autotune.search.bounds import Bounds
from autotune.search.forecast import forecast
from autotune.search.history import FinishedTrial, History
from autotune.search.plan import MEMORY_FRACTION_STAGE
from autotune.search.plan_state import AT_CEILING_RATIO
from autotune.settings import GROUP_OF_FIELD, Settings

SAMPLED_STAGE = "sampled"
NEIGHBOUR_STAGE = "neighbour"

HANDFUL = 5
"""Sound trials beside the baseline after which it is taken for the best, if none was faster: what usually gains most
comes first."""

NUM_GROUPS = 3
"""Groups of settings that they must have changed for that: workers and threads alone say nothing of the rest."""

WORTH_GOING_ON = 4
"""Times the noise that must be expected of a trial for a baseline below its ceiling not to be taken for the best: early
on something is expected of every job."""

NUM_OUTLOOKS = 4
"""Trials in a row, the next among them, that must promise little on average: on a noisy machine one new trial can turn
over what is expected of all others."""

LITTLE_GAIN = 0.1
"""Share of the noise below which an expected gain is not worth a trial. It is an average over what may come of it: a
tenth of the noise is one chance in fifty of gaining five times the noise, and that for every trial left. More of it
ends searches sooner, and more of them before they came to the best."""

PATIENCE = 24
"""Trials after the plan that may bring nothing, whatever they promised. It counts only after the plan: inside it, gains
come late. What all of this saves, and what it costs, `python -m tests.benchmarks.search` tells."""


def why_nothing_to_gain(
    history: History, gain_ratio: Callable[[], float | None], *, device_is_cpu: bool, noise_ratio: float
) -> str | None:
    """Why the script's own settings are the best already, as one sentence; None while something may be faster.

    Args:
        history: Finished trials.
        gain_ratio: What the trial that should gain most is expected to gain of the best rate, None where not known;
            only asked where nothing else tells.
        device_is_cpu: Loader and compute share the cores.
        noise_ratio: Differences of rates below this share are noise.
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
        # On a noisy machine a baseline that was lucky once is faster than what is better: no handful tells then.
        gain = None if expected.is_noisy else gain_ratio()
        if gain is None or gain > WORTH_GOING_ON * noise_ratio:
            return None
        return f"None of the {num_others} settings that usually gain most was faster than the script's own."
    reached = f"{min(share, 1.0):.0%}"
    return f"The script's own settings reach {reached} of their compute-only rate, and none of {num_others} was faster."


def why_patience_ends(history: History, gain_ratio: float | None, *, noise_ratio: float) -> str | None:
    """Why nothing more than the noise is to be expected after the plan, as one sentence; None while it may come.

    Args:
        history: Finished trials; those after the plan know what was expected of them.
        gain_ratio: What the trial that should gain most is expected to gain of the best rate; None where not known.
        noise_ratio: Differences of rates below this share are noise.
    """
    sampled = [trial for trial in history.trials if trial.stage in (SAMPLED_STAGE, NEIGHBOUR_STAGE)]
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


def finalists(
    history: History, expected: Mapping[Settings, float] | None = None, *, noise_ratio: float
) -> tuple[FinishedTrial, ...]:
    """Trials that may be the fastest, the fastest first, without the baseline.

    A trial may be if the upper end of its interval comes within the noise of the best, unless it is slower than the
    script's own settings, of which only a gain can win. Raced-out trials are not among them, nor are variants of the
    winner's memory. One that thrashed at the cap loses against any that did not and is faster than the script's own
    settings: what goes with every retry would be an end in a longer run.

    Args:
        history: Finished trials.
        expected: The rate to expect of every feasible one when it is measured again; by default what it measured. Of
            many noisy ones the luckiest leads by what it measured, and may leave the fastest out.
        noise_ratio: Differences of rates below this share are noise.
    """
    rates = expected or {trial.settings: _rate(trial) for trial in history.feasible}
    candidates = tuple(sorted(history.feasible, key=lambda trial: -rates[trial.settings]))
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
        and trial.stage != MEMORY_FRACTION_STAGE
        and rates[trial.settings] >= script_rate
        and rates[trial.settings] * (1 + max(trial.half_width_ratio or 0.0, noise_ratio)) >= least
    )


def _rate(trial: FinishedTrial) -> float:
    return trial.samples_per_second or 0.0
