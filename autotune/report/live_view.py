"""The live view of a search: status, running trial and gauges, as a frame of a few lines. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePath

from rich.text import Text

from autotune.model.events import (
    Event,
    FinalFinished,
    FinalsStarted,
    FinalStarted,
    LargerBatchStarted,
    MemoryShareStarted,
    ProbeFinished,
    ProbeStarted,
    SearchStarted,
    TrialFinished,
    TrialProgress,
    TrialStarted,
)
from autotune.model.gauges import Gauges, TrialPhase
from autotune.report.folding import bar, flow
from autotune.report.lines import StudyStatus
from autotune.report.words import changes_text, clean
from autotune.units import format_bytes, format_interval, format_rate, format_seconds

PHASE_WORDS = {
    TrialPhase.WAITING: "waiting for a quiet machine",
    TrialPhase.STARTING: "starting",
    TrialPhase.LEARNING: "learning the script",
    TrialPhase.WARM_UP: "warming up",
    TrialPhase.COMPUTE: "compute alone",
    TrialPhase.RAMP: "first batches",
    TrialPhase.WINDOW: "measuring",
    TrialPhase.ENDING: "ending",
}
PROGRESS_COLUMNS = 20
GAUGE_COLUMNS = 8
NUM_RECENT = 8
"""Number of latest runs used to predict the length of the next."""
RUNS_IN_FINALS = 12
"""Runs of the finals still to come during trials: three finalists and the baseline, three rounds."""
HINTS = (
    "Ctrl-C ends after this trial; what is finished is saved",
    "Ending after this trial; Ctrl-C once more ends it too",
    "Ending what is running",
)
"""Hints by the number of requested stops."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveView:
    """The contents of a frame, folded from the events of a search."""

    began_at: float
    """Start of this run of the search, on the caller's clock, like all times here."""
    started: SearchStarted | None = None
    status: StudyStatus = field(default_factory=StudyStatus)
    running: str = ""
    """Name of the running trial; empty between two runs."""
    changes: str = ""
    """Settings of the running trial that differ from the baseline."""
    phase_since: float = 0.0
    gauges: Gauges | None = None
    gain_ratio_per_minute: float | None = None
    """Expected gain of the next minute of trials; None while unknown, and in the finals."""
    recent_wall_s: tuple[float, ...] = ()
    num_finals_left: int | None = None
    """Runs of the finals to come, including the running one; None before the finals."""
    num_rounds: int = 0

    def after(self, event: Event, now: float) -> LiveView:
        """The view after an event."""
        view = replace(self, status=self.status.after(event))
        if isinstance(event, SearchStarted):
            return replace(view, started=event)
        if isinstance(event, TrialProgress):
            is_new = view.gauges is None or view.gauges.phase is not event.gauges.phase
            return replace(view, gauges=event.gauges, phase_since=now if is_new else view.phase_since)
        if isinstance(event, FinalsStarted):
            num_left = len(event.numbers) * event.num_rounds
            return replace(view, num_finals_left=num_left, num_rounds=event.num_rounds, gain_ratio_per_minute=None)
        if isinstance(event, (TrialFinished, FinalFinished)):
            recent = (*view.recent_wall_s, event.result.wall_s)[-NUM_RECENT:]
            left = view.num_finals_left
            is_final = isinstance(event, FinalFinished) and left is not None
            view = replace(view, recent_wall_s=recent, num_finals_left=max(0, left - 1) if is_final and left else left)
        if isinstance(event, (TrialFinished, FinalFinished, ProbeFinished)):
            return replace(view, running="", changes="", gauges=None)
        words = running_words(event, view)
        if not words:
            return view
        changes = ""
        if isinstance(event, TrialStarted):
            gain = event.gain_ratio_per_minute  # Trials may follow finals without a gain.
            view = replace(view, gain_ratio_per_minute=gain, num_finals_left=None, num_rounds=0)
        if isinstance(event, TrialStarted) and view.status.baseline is not None:
            changes = changes_text(event.settings, view.status.baseline) or "your settings"
        return replace(view, running=words, changes=changes, gauges=None, phase_since=now)


def running_words(event: Event, view: LiveView) -> str:
    """Name of the run started by an event; empty for an event that starts nothing."""
    if isinstance(event, ProbeStarted):
        return "probe: your script as it is"
    if isinstance(event, TrialStarted):
        return f"trial {event.number}"
    if isinstance(event, LargerBatchStarted):
        return f"a look at {event.factor}x the batch" if event.factor > 1 else "a second look at the batch as it is"
    if isinstance(event, MemoryShareStarted):
        return f"the winner in {format_bytes(event.limit_bytes)}"
    if isinstance(event, FinalStarted):
        return f"final {event.round + 1} of {max(view.num_rounds, event.round + 1)}: trial {event.number}"
    return ""


def left_s(view: LiveView, now: float) -> float | None:
    """Predicted seconds to the end of the search, from the time of its latest runs; None before the start.

    The budget limits the prediction during trials. A search with a finished plan ends earlier.
    """
    if view.started is None:
        return None
    budget_s = max(0.0, view.started.budget_s - _spent_s(view, now))
    if not view.recent_wall_s:
        return budget_s
    run_s = sum(view.recent_wall_s) / len(view.recent_wall_s)
    if view.num_finals_left is not None:
        return view.num_finals_left * run_s
    if view.started.max_trials is None:
        return budget_s
    num_trials = max(0, view.started.max_trials - view.status.num_finished)
    return min(budget_s, (num_trials + RUNS_IN_FINALS) * run_s)


def frame(view: LiveView, now: float, width: int, *, num_stops: int = 0) -> Text:
    """The view as lines under a blank line: plain ASCII, no line longer than the terminal.

    Args:
        view: The view.
        now: Time on the clock of the view.
        width: Columns of the terminal.
        num_stops: Number of requested stops.
    """
    started = view.started
    if started is None and not view.running:
        return Text("starting", style="dim")
    groups = [
        ([_machine(started)] if started is not None else [], "bold"),
        (_progress(view, started, now) if started is not None else [], ""),
        (_rates(view.status), ""),
        (_running(view, now), ""),
        (_gauges(view.gauges, started.memory_cap_bytes if started is not None else None), ""),
        ([Text(HINTS[min(num_stops, len(HINTS) - 1)])], "bold" if num_stops else "dim"),
    ]
    lines = [Text()]
    for parts, style in groups:
        for line in flow(parts, width):
            line.stylize(style)
            lines.append(line)
    return Text("\n").join(lines)


def _machine(started: SearchStarted) -> Text:
    return Text(f"{clean(PurePath(started.script).name)} on {clean(started.machine)}")


def _spent_s(view: LiveView, now: float) -> float:
    return now - view.began_at + (view.started.spent_s if view.started is not None else 0.0)


def _progress(view: LiveView, started: SearchStarted, now: float) -> list[Text]:
    spent_s, num = _spent_s(view, now), view.status.num_finished
    by_trials = num / started.max_trials if started.max_trials else 0.0
    share = 1.0 if view.num_finals_left is not None else max(by_trials, spent_s / started.budget_s)
    limit = f" of {started.max_trials}" if started.max_trials is not None else ""
    ends, gain = left_s(view, now), view.gain_ratio_per_minute
    return [
        Text(f"cap {format_bytes(started.memory_cap_bytes)}"),
        Text(bar(share, PROGRESS_COLUMNS), style="cyan"),
        Text(f"{num}{limit} trials"),
        Text(f"{format_seconds(spent_s)} of {format_seconds(started.budget_s)}"),
        *([Text(f"ends within {format_seconds(ends)}")] if ends is not None else []),
        *([Text(f"next minute +{max(gain, 0.0):.1%}")] if gain is not None else []),
    ]


def _rates(status: StudyStatus) -> list[Text]:
    parts = []
    if status.baseline_rate is not None:
        parts.append(Text(f"yours {_rate(status.baseline_rate, status.baseline_interval, status.samples_unit)}"))
    is_baseline = status.best_settings is not None and status.best_settings == status.baseline
    if status.best_rate is not None and not is_baseline:
        ratio = f" {status.best_rate / status.baseline_rate:.2f}x" if status.baseline_rate else ""
        rate = _rate(status.best_rate, status.best_interval, status.samples_unit)
        best = f"best {rate}{ratio} (trial {status.best_trial})"
        parts.append(Text(best, style="green"))
    return parts


def _rate(per_second: float, interval: tuple[float, float] | None, unit: str) -> str:
    return f"{format_rate(per_second)}{f' {format_interval(*interval)}' if interval is not None else ''} {unit}/s"


def _running(view: LiveView, now: float) -> list[Text]:
    if not view.running:
        return []
    phase = PHASE_WORDS[view.gauges.phase] if view.gauges is not None else "starting"
    parts = [Text(view.running, style="bold"), Text(f"{phase}, {format_seconds(max(0.0, now - view.phase_since))}")]
    if view.gauges is not None and view.gauges.samples_per_second is not None:
        parts.append(Text(f"about {format_rate(view.gauges.samples_per_second)} {view.status.samples_unit}/s"))
    return [*parts, *([Text(view.changes)] if view.changes else [])]


def _gauges(gauges: Gauges | None, cap_bytes: int | None) -> list[Text]:
    """The known gauges."""
    if gauges is None:
        return []
    shares = [
        ("GPU", gauges.device_utilization),
        ("CPU", gauges.cpu_fraction),
        ("data wait", gauges.data_wait_fraction),
    ]
    parts = [f"{name} {bar(share, GAUGE_COLUMNS)} {share:4.0%}" for name, share in shares if share is not None]
    if gauges.memory_bytes is not None:
        of_cap = f"{bar(gauges.memory_bytes / cap_bytes, GAUGE_COLUMNS)} " if cap_bytes is not None else ""
        parts.append(f"memory {of_cap}{format_bytes(gauges.memory_bytes)}")
    return [Text(part) for part in parts]
