"""The rows of a study's tables, the same in HTML and in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import Contender
from autotune.model.study_view import StudyView
from autotune.model.trial_records import TrialRecord
from autotune.protocol.protection import SENTENCES, Protection
from autotune.report.effects import effect_text, effects
from autotune.report.verification_text import verification_line
from autotune.report.words import OUTCOME_WORDS, changes_text, value_text
from autotune.settings import Settings
from autotune.units import format_bytes, format_interval, format_rate, format_seconds


def figure_rows(view: StudyView) -> Iterator[tuple[str, str]]:
    """The most important figures, as name and value."""
    result = view.result
    unit = f"{result.samples_unit} per second"
    if result.speedup is not None:
        ratio, low, high = result.speedup
        yield f"as fast as yours [{low:.2f}, {high:.2f}]", f"{ratio:.2f}x"
    for found in result.verifications[-1:]:
        yield verification_line(found), f"{found.real[0]:.2f}x"
    is_kept = view.best_number == view.baseline_number
    for name, contender in (("yours", result.baseline), ("best", None if is_kept else result.best)):
        if contender is not None and contender.samples_per_second is not None:
            yield f"{unit}, {name}{_interval(contender)}", format_rate(contender.samples_per_second)
    if result.best is not None and result.best.peak_memory_bytes is not None and view.memory_cap_bytes:
        share = result.best.peak_memory_bytes / view.memory_cap_bytes
        whose = "" if is_kept else " of the best"
        words = f"peak memory{whose}, {share:.0%} of the cap of {format_bytes(view.memory_cap_bytes)}"
        yield words, format_bytes(result.best.peak_memory_bytes)
    counts = view.result.trials
    kinds = ((counts.infeasible, "over the cap"), (counts.failed, "failed"), (counts.gated, "not run: too large"))
    endings = "".join(f", {count} {words}" for count, words in kinds if count)
    yield f"{'trial' if counts.total == 1 else 'trials'} in {format_seconds(view.spent_s)}{endings}", str(counts.total)


def _interval(contender: Contender) -> str:
    return f" {format_interval(*contender.interval)}" if contender.interval is not None else ""


def change_rows(view: StudyView) -> Iterator[tuple[str, str, str]]:
    """Name, baseline's value and best's value of each changed setting."""
    best = view.result.best
    own = view.baseline.settings if view.baseline is not None else view.script_settings
    if best is not None and own is not None:
        for name, (after, before) in best.settings.differences(own).items():
            yield name, value_text(before), value_text(after)


def effect_rows(view: StudyView) -> Iterator[tuple[str, str, str]]:
    """Setting, change from the baseline's value, and effect under equal other settings."""
    if view.baseline is not None:
        for effect in effects(view.trials, view.baseline.settings):
            yield effect.setting, f"{effect.start} -> {effect.end}", effect_text(effect)


def machine_rows(view: StudyView) -> Iterator[tuple[str, str]]:
    """The machine and its software, as name and value."""
    for name, value in view.machine.items():
        if name.endswith("_bytes"):
            yield name.removesuffix("_bytes"), format_bytes(float(value))
        else:
            yield name.replace("_", " "), value
    if view.result.protection:
        yield "protection of files", SENTENCES[Protection(view.result.protection)]


def trial_cells(view: StudyView, trial: TrialRecord) -> tuple[str, ...]:
    """Number, outcome, rate, ratio, memory, wait for data, time, start, and the differences from the baseline."""
    result, rate, ratio = trial.result, "-", "-"
    per_second = result.rate_or_bound
    if per_second is not None:
        bound = "<" if result.outcome is Outcome.RACED_OUT else ""
        rate = bound + format_rate(per_second)
        ratio = f"{bound}{per_second / view.baseline_rate:.2f}x" if view.baseline_rate else "-"
    baseline = view.baseline.settings if view.baseline is not None else view.script_settings or Settings()
    return (
        str(trial.number),
        OUTCOME_WORDS[result.outcome],
        rate,
        ratio,
        _memory(result),
        _waits(result),
        format_seconds(result.wall_s),
        result.start.value,
        changes_text(trial.settings, baseline) or "your settings",
    )


def final_rows(view: StudyView) -> Iterator[tuple[str, ...]]:
    """Round, trial, rate, memory, wait for data and outcome of every run of the finals."""
    for final in view.finals:
        measurement = final.result.measurement
        yield (
            str(final.round + 1),
            str(final.number),
            format_rate(measurement.samples_per_second) if measurement is not None else "-",
            _memory(final.result),
            _waits(final.result),
            OUTCOME_WORDS[final.result.outcome],
        )


def _memory(result: TrialResult) -> str:
    if result.peak_memory_bytes is None:
        return "-"
    return (">" if result.outcome.is_infeasible else "") + format_bytes(result.peak_memory_bytes)


def _waits(result: TrialResult) -> str:
    return f"{result.measurement.data_wait_fraction:.0%}" if result.measurement is not None else "-"
