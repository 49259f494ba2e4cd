"""The state of a job's search as told by its events, for the live page. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from xml.etree.ElementTree import Element

from autotune.model.outcome import Outcome
from autotune.report.pictures import ENDINGS, MARKS, kind_of, tick_words
from autotune.report.svg import Chart, canvas, glyph
from autotune.report.words import OUTCOME_WORDS, clean
from autotune.units import format_rate

MAX_NOTICES = 5
Document = Mapping[str, Any]


@dataclass(slots=True)
class LiveTrial:
    """One trial of a running or ended search."""

    number: int
    settings: Document
    stage: str
    end: Document | None = None
    """The event `trial_finished`; None while the trial runs."""
    log_tail: str = ""
    """Last output of a failed trial, if the study is in this database."""
    has_log: bool = False
    """True when the last output was looked for."""

    @property
    def outcome(self) -> Outcome | None:
        """Kind of the end; None while the trial runs, or for a kind of a newer release."""
        name = self.end.get("outcome") if self.end is not None else None
        return Outcome(name) if name in list(Outcome) else None

    @property
    def kind(self) -> str:
        """Class of the mark in pictures: ok, bound, memory or failed."""
        return kind_of(self.outcome) if self.outcome is not None else ""

    @property
    def words(self) -> str:
        """The end in words."""
        if self.end is None:
            return "running"
        return OUTCOME_WORDS[self.outcome] if self.outcome is not None else clean(str(self.end.get("outcome")))

    @property
    def rate(self) -> float | None:
        """Samples per second; an upper bound for a trial that was ended early."""
        return self.end.get("samples_per_second") if self.end is not None else None


@dataclass(slots=True)
class LiveJob:
    """A search folded from its events."""

    started: Document = field(default_factory=dict)
    """The event `search_started`; empty before."""
    probe: Document = field(default_factory=dict)
    """The event `probe_finished`; empty before."""
    doing: str = "Waiting for a worker."
    trials: dict[int, LiveTrial] = field(default_factory=dict)
    finals: list[Document] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    gauges: Document = field(default_factory=dict)
    """Gauges of the current run; empty between runs."""
    result: Document = field(default_factory=dict)
    """The event `result`; empty before."""
    last_at: str = ""
    """Time of the newest event, in ISO 8601."""

    def spent_s(self, now: datetime, *, is_running: bool) -> float | None:
        """Seconds spent by all runs of the search; None before the first."""
        if not self.started:
            return None
        until = now if is_running and not self.result else datetime.fromisoformat(self.last_at)
        run_s = (until - datetime.fromisoformat(str(self.started["at"]))).total_seconds()
        return float(self.started.get("spent_s") or 0.0) + max(run_s, 0.0)

    @property
    def is_measuring(self) -> bool:
        """True while some trial runs."""
        return not self.result and self.doing.startswith(("Measuring", "Running", "Finals"))

    @property
    def unit(self) -> str:
        """Unit of the rates."""
        return clean(str(self.probe.get("samples_unit") or "samples"))

    @property
    def ended(self) -> list[LiveTrial]:
        """Trials with an end, in the order of their numbers."""
        return [trial for _, trial in sorted(self.trials.items()) if trial.end is not None]

    @property
    def shown(self) -> list[LiveTrial]:
        """All trials, the newest first."""
        return [trial for _, trial in sorted(self.trials.items(), reverse=True)]

    @property
    def own_settings(self) -> Document:
        """The script's own settings."""
        baseline = self.trials.get(0)
        return baseline.settings if baseline is not None else self.probe.get("natural") or {}

    @property
    def baseline_rate(self) -> float | None:
        """Rate of the script's own settings; None before the first trial."""
        baseline = self.trials.get(0)
        return baseline.rate if baseline is not None and baseline.outcome is Outcome.OK else None

    @property
    def best(self) -> LiveTrial | None:
        """The fastest trial so far; None before the first."""
        measured = [trial for trial in self.ended if trial.outcome is Outcome.OK and trial.rate]
        return max(measured, key=lambda trial: trial.rate or 0.0, default=None)

    @property
    def ratio(self) -> float | None:
        """Rate of the best single trial over the baseline's; None while unknown."""
        best = self.best
        return best.rate / self.baseline_rate if best is not None and best.rate and self.baseline_rate else None

    def chart(self) -> Element | None:
        """Rates of the ended trials in order, with the best so far; None without a rate."""
        measured = [trial for trial in self.ended if trial.rate]
        if not measured:
            return None
        last = max(trial.number for trial in self.ended)
        top = 1.08 * max(trial.rate or 0.0 for trial in measured)
        chart = Chart("Throughput of every trial, in order", (-0.5, last + 0.5), (0.0, top), width=620.0)
        chart.y_axis(f"{self.unit} per second", tick_words)
        chart.x_ticks("trial", [(value, f"{value:g}") for value in chart.across.ticks() if value == int(value)])
        if self.baseline_rate is not None:
            chart.level(self.baseline_rate, "yours", "baseline", until=last + 0.5)
        chart.steps(self._best_so_far(last), "line")
        best = self.best
        for trial in self.ended:
            tip = f"trial {trial.number}: {trial.words}" + (f", {format_rate(trial.rate)}/s" if trial.rate else "")
            is_best = best is not None and trial.number == best.number
            chart.mark(trial.number, trial.rate or 0.0, trial.kind or "failed", tip, is_best=is_best)
        return chart.root

    def _best_so_far(self, last: int) -> list[tuple[float, float]]:
        points: list[tuple[float, float]] = []
        for trial in self.ended:
            if trial.outcome is Outcome.OK and trial.rate and (not points or trial.rate > points[-1][1]):
                points.append((trial.number, trial.rate))
        return [*points, (last + 0.5, points[-1][1])] if points else []

    @property
    def legend(self) -> list[tuple[Element, str]]:
        """Drawing and words of each kind of mark in the chart."""
        kinds = {trial.kind for trial in self.ended if trial.kind}
        return [(_mark(kind), MARKS[kind]) for kind in ENDINGS if kind in kinds]


def _mark(kind: str) -> Element:
    drawing = canvas(MARKS[kind], 12, 12)
    drawing.append(glyph(kind, 6.0, 6.0))
    return drawing


def tell(job: LiveJob, event: Document) -> None:
    """Brings the state up to date by one document of the event stream; an unknown event changes nothing."""
    name, job.last_at = event.get("event"), str(event.get("at", ""))
    if name == "search_started":
        job.started, job.result, job.notices = event, {}, []
        job.doing = "Starting."
    elif name == "probe_started":
        job.doing = "Running the script once under its own settings, to learn about it."
    elif name == "probe_finished":
        job.probe, job.doing = event, "The script is known."
    elif name == "trial_started":
        number = int(event["number"])
        job.trials[number] = LiveTrial(number, event.get("settings") or {}, str(event.get("stage", "")))
        job.doing, job.gauges = f"Measuring trial {number}.", {}
    elif name == "trial_progress":
        job.gauges = event.get("gauges") or {}
    elif name == "trial_finished":
        number = int(event["number"])
        job.trials[number] = LiveTrial(number, event.get("settings") or {}, str(event.get("stage", "")), event)
        job.doing, job.gauges = f"Trial {number} has ended.", {}
    elif name == "larger_batch_started":
        is_larger = int(event.get("factor", 2)) > 1
        job.doing = f"Measuring {'a larger batch' if is_larger else 'the batch as it is'}, for advice."
    elif name == "finals_started":
        numbers = ", ".join(str(number) for number in event.get("numbers", ()))
        job.doing = f"Finals: trials {numbers} run again in turns."
        job.finals.clear()
    elif name == "final_started":
        job.doing, job.gauges = f"Finals, round {int(event['round']) + 1}: trial {event['number']}.", {}
    elif name == "final_finished":
        job.finals.append(event)
    elif name == "notice":
        job.notices = [*job.notices, clean(str(event.get("message", "")))][-MAX_NOTICES:]
    elif name == "result":
        job.result, job.doing, job.gauges = event, "The search has ended.", {}
