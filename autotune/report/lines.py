"""One line per event of a search. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from autotune.model.events import (
    Event,
    FinalFinished,
    FinalsStarted,
    Notice,
    ProbeFinished,
    ProbeStarted,
    SearchStarted,
    TrialFinished,
)
from autotune.model.facts import ArgumentFacts, ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.report.words import OUTCOME_WORDS, changes_text, clean, refused_words
from autotune.settings import Settings
from autotune.units import format_bytes, format_rate, format_seconds

MAX_NAMED_FILES = 3


def header(unit: str, *, settings: str = "settings that differ from yours") -> str:
    """The header over lines of trials, with rates in the given unit per second."""
    return f"{'trial':>5}  {'outcome':<13}  {unit + '/s':>9}  {'ratio':>6}  {'memory':>10}  {settings}"


SETTINGS_COLUMN = len(header("samples", settings=""))
"""Column of a trial's settings; a line too long for the terminal is broken there first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyStatus:
    """The status of a search, for comparison with its trials."""

    baseline: Settings | None = None
    baseline_rate: float | None = None
    baseline_interval: tuple[float, float] | None = None
    """Interval of the baseline's rate within its trial; the best's interval alike."""
    best_rate: float | None = None
    best_interval: tuple[float, float] | None = None
    best_settings: Settings | None = None
    best_trial: int | None = None
    num_finished: int = 0
    samples_unit: str = "samples"
    """Unit of rates."""

    def after(self, event: Event) -> StudyStatus:
        """The status after an event."""
        if isinstance(event, SearchStarted):
            return replace(self, num_finished=event.num_finished)
        if isinstance(event, ProbeFinished):
            baseline = event.natural.canonical(device_is_cpu=event.facts.device == "cpu")
            return replace(self, baseline=baseline, samples_unit=event.samples_unit)
        if not isinstance(event, TrialFinished):
            return self
        status = self
        measured = event.result.measurement
        rate = measured.samples_per_second if measured is not None else None
        interval = (measured.low, measured.high) if measured is not None else None
        if event.number == 0 or status.baseline is None:
            # The baseline as it really ran, with the memory limit.
            status = replace(status, baseline=event.settings)
        if event.settings == status.baseline and event.result.outcome is Outcome.OK:
            status = replace(status, baseline_rate=rate, baseline_interval=interval)
        if event.is_best:
            status = replace(
                status,
                best_rate=rate,
                best_interval=interval,
                best_settings=event.settings,
                best_trial=event.number,
            )
        return replace(status, num_finished=status.num_finished + event.result.outcome.is_finished)


def event_lines(event: Event, status: StudyStatus) -> tuple[str, ...]:
    """The lines for an event; `status` already includes the event."""
    if isinstance(event, SearchStarted):
        return _started_lines(event)
    if isinstance(event, ProbeStarted):
        return ("probe: your script runs once, as it is; it may download and prepare what it needs",)
    if isinstance(event, ProbeFinished):
        return _probe_lines(event)
    if isinstance(event, TrialFinished):
        return _trial_lines(event, status)
    if isinstance(event, FinalsStarted):
        numbers = ", ".join(map(str, event.numbers))
        again = f"trials {numbers} run again in turns" if len(event.numbers) > 1 else f"trial {numbers} runs again"
        where = "in the process of the trials" if event.is_shared else "of fresh processes"
        more, after = ("more ", f" after {event.num_done}") if event.num_done else ("", "")
        rounds = f"{event.num_rounds} {more}round{'' if event.num_rounds == 1 else 's'}"
        return (f"finals: {again}; planned: {rounds} {where}{after}",)
    if isinstance(event, FinalFinished):
        return (f"final {event.round + 1}: trial {event.number}, {_final_words(event.result)}",)
    if isinstance(event, Notice):
        return (f"{'warning: ' if event.is_warning else ''}{clean(event.message)}",)
    return ()


def _started_lines(event: SearchStarted) -> tuple[str, ...]:
    trials = f"{event.max_trials} trials or " if event.max_trials is not None else ""
    lines = [
        f"study {clean(event.study)}: {clean(PurePath(event.script).name)} on {clean(event.machine)}",
        f"  memory cap {format_bytes(event.memory_cap_bytes)}, at most {trials}{format_seconds(event.budget_s)}",
        f"  stored in {clean(_relative_url(event.storage, event.cwd))}",
    ]
    if event.num_finished:
        num_finished = event.num_finished
        lines.append(f"  goes on after {num_finished} finished trial{'s' if num_finished > 1 else ''}")
    return tuple(lines)


def _relative_url(url: str, cwd: str) -> str:
    """The URL of a database file, relative to this folder if below it."""
    head, slashes, path = url.partition(":///")
    return f"{head}{slashes}{path.removeprefix(cwd.rstrip('/') + '/')}" if cwd else url


def _probe_lines(event: ProbeFinished) -> tuple[str, ...]:
    words = clean(facts_words(event.facts, event.natural))
    lines = [f"probe done in {format_seconds(event.wall_s)}: {words}"]
    if "launcher_threads" in event.facts.notes:
        lines.append(
            f"  torchrun set OMP_NUM_THREADS={event.natural.intra_op_threads} for each process, since you set none; "
            "the baseline has it too, and others are tried where there are cores"
        )
    lines += [f"  left out {words}" for words in refused_words(event.refused)]
    lines += [f"  {words}" for words in argument_words(event.arguments)]
    return tuple(lines)


def argument_words(arguments: Sequence[ArgumentFacts]) -> tuple[str, ...]:
    """The script's own arguments in use for settings, and options to use further arguments."""
    taken = [f"{clean(it.name)} by {clean(it.template)}" for it in arguments if it.is_taken]
    options = [shlex.join(["--map", clean(f"{it.name}={it.template}")]) for it in arguments if not it.is_taken]
    lines = [f"given by your script's own arguments: {', '.join(taken)}"] if taken else []
    if options:
        lines.append(
            f"to search by your script's own arguments, where only that follows from them: {' '.join(options)}"
        )
    return tuple(lines)


def facts_words(facts: ScriptFacts, script_settings: Settings) -> str:
    """The probe's facts about a script, in one line."""
    words = [f"{facts.num_parameters:,} parameters trained on {facts.device}"]
    if facts.world_size > 1:
        shares = ", each with its share of the weights (FSDP)" if "sharded" in facts.notes else ""
        words.append(f"{facts.world_size} processes{shares}")
    if "deepspeed" in facts.notes:
        words.append("by DeepSpeed's engine")
    if script_settings.batch_size is not None:
        accumulation = f" x {script_settings.grad_accum_steps}" if script_settings.grad_accum_steps > 1 else ""
        words.append(f"batch {script_settings.batch_size}{accumulation}")
    words.append(_data_words(facts, script_settings))
    words.append(script_settings.precision.value)
    if facts.step_s > 0:
        words.append(f"{format_rate(1 / facts.step_s)} steps per second")
    return ", ".join(words)


def _data_words(facts: ScriptFacts, script_settings: Settings) -> str:
    if facts.keras is not None and facts.keras.version:
        return f"Keras {facts.keras.version} on {facts.keras.engine}, data: {facts.keras.data.value}"
    if facts.keras is not None:
        return "a loop of its own"
    return "no torch DataLoader" if facts.loader is None else f"{script_settings.num_workers} loader workers"


def trial_line(
    number: int, settings: Settings, result: TrialResult, *, baseline: Settings | None, baseline_rate: float | None
) -> str:
    """A finished trial under `header`: outcome, rate, memory, and the differences from the baseline.

    Args:
        number: Number of the trial.
        settings: Settings of the trial.
        result: Ending of the trial.
        baseline: Settings of the baseline, as far as known.
        baseline_rate: Samples per second of the baseline, if measured.
    """
    rate, ratio = "-", "-"
    per_second = result.rate_or_bound
    if per_second is not None:
        bound = "<" if result.outcome is Outcome.RACED_OUT else ""
        rate = bound + format_rate(per_second)
        ratio = f"{bound}{per_second / baseline_rate:.2f}x" if baseline_rate else "-"
    memory = "-"
    if result.peak_memory_bytes is not None:
        memory = (">" if result.outcome.is_infeasible else "") + format_bytes(result.peak_memory_bytes)
    changes = changes_text(settings, baseline if baseline is not None else Settings()) or "your settings"
    reason = f" ({clean(result.why)})" if result.reason and result.outcome is not Outcome.OK else ""
    outcome = OUTCOME_WORDS[result.outcome]
    return f"{number:>5}  {outcome:<13}  {rate:>9}  {ratio:>6}  {memory:>10}  {changes}{reason}"


def _trial_lines(event: TrialFinished, status: StudyStatus) -> tuple[str, ...]:
    line = trial_line(
        event.number,
        event.settings,
        event.result,
        baseline=status.baseline,
        baseline_rate=status.baseline_rate,
    )
    if event.is_best and event.settings != status.baseline:
        line += "  <- best so far"
    if not event.result.escaped:
        return (line,)
    escaped = event.result.escaped
    named = ", ".join(clean(path) for path in escaped[:MAX_NAMED_FILES])
    more = f" and {len(escaped) - MAX_NAMED_FILES} more" if len(escaped) > MAX_NAMED_FILES else ""
    return line, f"warning: files of yours were changed or removed while it ran: {named}{more}"


def _final_words(result: TrialResult) -> str:
    if result.measurement is None:
        return f"{OUTCOME_WORDS[result.outcome]} ({clean(result.why)})"
    return f"{format_rate(result.measurement.samples_per_second)} per second"
