"""A stored study as it is told: gathered by the tuner, drawn and written by the reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from autotune.measure.bottleneck import Bottleneck
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.model.search_result import SearchResult
from autotune.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialView:
    """One trial of a study."""

    number: int
    attempt: int
    """1 for the first run of these settings, more after an interruption."""
    stage: str
    """Why these settings: the stage of the plan, or `sampled`."""
    settings: Settings
    result: TrialResult
    started_at: datetime
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that change speed, by the allow-list of what may be stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalView:
    """One run of the finals."""

    round: int
    """From 0."""
    number: int
    """The trial whose settings ran again."""
    result: TrialResult


@dataclass(frozen=True, kw_only=True, slots=True)
class PlotlyFigure:
    """A figure that Optuna made, for plotly to draw."""

    title: str
    values: Mapping[str, Any]
    """Its `data` and `layout`, as plain JSON."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyView:
    """All that may be shown of one study: secrets are masked, but for what its author named, nothing is cleaned."""

    study: str
    status: str
    """`running`, or the status of the result."""
    is_live: bool
    """Whether a tuner searches it at this moment."""
    is_final: bool
    """Whether the figures of `result` come from finals; otherwise they are those of single trials."""
    created_at: datetime
    command: tuple[str, ...]
    script: str
    cwd: str
    storage: str
    max_trials: int | None
    effective_batch: str
    """`fixed`, `free` or a range, as asked."""
    budget_s: float
    spent_s: float
    memory_cap_bytes: int | None
    facts: ScriptFacts | None
    script_settings: Settings | None
    """The script's own settings."""
    refused: tuple[tuple[str, str], ...]
    """(setting, reason) of what was left out of the space."""
    machine: Mapping[str, str]
    """What was measured on and with, by name."""
    result: SearchResult
    trials: tuple[TrialView, ...]
    """By number."""
    finals: tuple[FinalView, ...]
    baseline_number: int | None
    """Of the trial of the script's own settings."""
    best_number: int | None
    """Of the trial of the best settings."""
    before: Bottleneck | None
    """What binds the script's own settings; None where they were not measured."""
    after: Bottleneck | None
    """The same for the best."""
    importances: Mapping[str, float] = field(default_factory=dict)
    """Share of each setting in being among the fastest, as Optuna estimates it; empty where nobody asked, or there
    were too few trials."""

    figures: tuple[PlotlyFigure, ...] = ()
    """Optuna's own, where they were asked for."""

    @property
    def results(self) -> tuple[TrialResult, ...]:
        """Of all trials, and of all runs of the finals."""
        return (*(trial.result for trial in self.trials), *(final.result for final in self.finals))

    @property
    def baseline(self) -> TrialView | None:
        """The trial of the script's own settings."""
        return self._trial(self.baseline_number)

    @property
    def best(self) -> TrialView | None:
        """The trial of the best settings."""
        return self._trial(self.best_number)

    @property
    def baseline_rate(self) -> float | None:
        """Samples per second of the baseline's trial; None where it was not measured."""
        measured = self.baseline.result.measurement if self.baseline is not None else None
        return measured.samples_per_second if measured is not None else None

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all trials; of one that differed among them, every value."""
        values: dict[str, list[str]] = {}
        for trial in self.trials:
            for name, value in trial.environment.items():
                known = values.setdefault(name, [])
                if value not in known:
                    known.append(value)
        return {name: " | ".join(known) for name, known in sorted(values.items())}

    def _trial(self, number: int | None) -> TrialView | None:
        return next((trial for trial in self.trials if trial.number == number), None)
