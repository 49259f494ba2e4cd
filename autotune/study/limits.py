"""The limits of a study, time and trials: sufficient limits, and other limits for a stored study."""

from __future__ import annotations

import shlex
from dataclasses import replace

from autotune.errors import UsageError
from autotune.model.facts import ScriptFacts
from autotune.model.search_result import Status
from autotune.search.history import History
from autotune.spec import SearchSpec
from autotune.store.records import StudyRecord
from autotune.study.budget import Budget
from autotune.study.trial_rounds import num_rivals
from autotune.units import format_minutes, format_seconds

STEPS_OF_RUN = 24
"""Usual steps of a run with long steps: a warm-up and a window of a dozen steps."""
ENOUGH_TRIALS = 10
"""Number of trials with which a search compares several settings."""
SPENT_SHARE = 0.9
"""Least spent share of the given time for a search that ended by the time."""
EARLIER_GAIN = (
    "The gain of the earlier finals and their config stay: the new time was too short to measure the new finalists."
)


def enough_s(budget: Budget, history: History, facts: ScriptFacts | None) -> float:
    """Total time enough to compare one other setting with the script's own, in seconds.

    The time of another probe is included: an ended study keeps no files, so a resume probes the script again.

    Args:
        budget: Time of the search.
        history: The finished trials.
        facts: Facts of the probe; None without a probe.
    """
    if history.baseline is not None:
        found_s = budget.enough_s(num_rivals=num_rivals(history.feasible, history)) + budget.probe_s
        return max(found_s, budget.total_s)
    run_s = facts.first_step_s + STEPS_OF_RUN * facts.step_s if facts is not None else 0.0
    return budget.enough_for_first_s(run_s) + budget.probe_s


def options_for_more(spec: SearchSpec, time_s: float) -> tuple[str, ...]:
    """The options of a resume with `time_s` seconds in all, and with more trials for a study of few."""
    trials = ("--trials", str(ENOUGH_TRIALS)) if spec.trials_limit < ENOUGH_TRIALS else ()
    return ("--time", format_minutes(time_s), *trials)


def with_limits(spec: SearchSpec, *, budget_s: float | None = None, max_trials: int | None = None) -> SearchSpec:
    """The search with other limits, each None = as before."""
    return replace(
        spec,
        budget_s=spec.budget_s if budget_s is None else budget_s,
        max_trials=spec.max_trials if max_trials is None else max_trials,
    )


def check_limits(record: StudyRecord, num_finished: int, *, budget_s: float | None, max_trials: int | None) -> None:
    """Refuses new limits that a stored study has spent already.

    Args:
        record: The study.
        num_finished: Number of the study's finished trials.
        budget_s: Time in all, in seconds; None = as before.
        max_trials: Trials in all; None = as before.

    Raises:
        UsageError: Nothing of a limit is left.
    """
    given_s = record.spec.budget_s if budget_s is None else budget_s
    if given_s <= record.spent_s:
        spent, given = format_seconds(record.spent_s), format_seconds(given_s)
        more = format_minutes(record.spent_s + record.spec.budget_s)
        raise UsageError(
            f"Study {record.name!r} has spent {spent}, so a --time of {given} leaves nothing.",
            f"Give more time in all, such as --time {more}.",
        )
    if max_trials is not None and max_trials <= num_finished:
        raise UsageError(
            f"Study {record.name!r} has {num_finished} trials, so --trials {max_trials} leaves none.",
            f"Give more trials in all, such as --trials {num_finished + ENOUGH_TRIALS}.",
        )


def ended_words(record: StudyRecord, enough_time_s: float | None) -> str:
    """Says that a resume of an ended study runs nothing, and names the options that give the study more.

    Args:
        record: The study, with a result.
        enough_time_s: Total time in seconds enough for a comparison; None for a study with a comparison.
    """
    spent, given = format_seconds(record.spent_s), format_seconds(record.spec.budget_s)
    words = f"Study {record.name!r} has ended after {spent} of {given}, so nothing is run."
    if enough_time_s is None and record.spent_s < SPENT_SHARE * record.spec.budget_s:
        return words  # The time was not the limit.
    time_s = enough_time_s if enough_time_s is not None else record.spent_s + record.spec.budget_s
    return f"{words} With more time it goes on: add {shlex.join(options_for_more(record.spec, time_s))}."


def keeps_gain(before: StudyRecord, status: Status) -> bool:
    """Whether a study keeps its published gain, because its run under new limits has no answer.

    Args:
        before: The study before the new limits, with its result.
        status: How the new run ended.
    """
    had_gain = before.result is not None and before.result.get("status") == Status.IMPROVED.value
    return had_gain and status in (Status.TOO_SHORT, Status.INTERRUPTED)
