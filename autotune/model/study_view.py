"""A stored study as shown by the reports; the tuner gathers the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from autotune.measure.bottleneck import Bottleneck
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.model.search_result import SearchResult
from autotune.model.trial_records import FinalRecord, TrialRecord, results_of_runs
from autotune.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class PlotlyFigure:
    """A figure made by Optuna and drawn by plotly."""

    title: str
    values: Mapping[str, Any]
    """The figure's `data` and `layout`, as plain JSON."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyView:
    """Everything that may be shown of one study, with masked secrets.

    Names given by the user are not masked, and control characters are still in the texts.
    """

    study: str
    status: str
    """`running`, or the status of the result."""
    is_live: bool
    """True while a tuner searches the study."""
    is_final: bool
    """True when the figures of `result` come from finals; otherwise they come from single trials."""
    created_at: datetime
    command: tuple[str, ...]
    script: str
    cwd: str
    storage: str
    max_trials: int | None
    effective_batch: str
    """`fixed`, `free` or a range, as requested."""
    budget_s: float
    spent_s: float
    memory_cap_bytes: int | None
    facts: ScriptFacts | None
    script_settings: Settings | None
    """The script's own settings."""
    refused: tuple[tuple[str, str], ...]
    """(setting, reason) of each setting left out of the space."""
    machine: Mapping[str, str]
    """Hardware and software of the measurements, by name."""
    result: SearchResult
    trials: tuple[TrialRecord, ...]
    """Trials in the order of their numbers."""
    finals: tuple[FinalRecord, ...]
    baseline_number: int | None
    """Number of the trial of the script's own settings."""
    best_number: int | None
    """Number of the trial of the best settings."""
    before: Bottleneck | None
    """Bottleneck of the script's own settings; None when not measured."""
    after: Bottleneck | None
    """Bottleneck of the best settings; None when not measured."""
    importances: Mapping[str, float] = field(default_factory=dict)
    """Share of each setting in being among the fastest, as Optuna estimates; empty if not requested or unknown."""

    figures: tuple[PlotlyFigure, ...] = ()
    """Optuna's own figures, if requested."""

    @property
    def results(self) -> tuple[TrialResult, ...]:
        """Results of all trials and of all runs of the finals."""
        return results_of_runs(self.trials, self.finals)

    @property
    def baseline(self) -> TrialRecord | None:
        """The trial of the script's own settings."""
        return self._trial(self.baseline_number)

    @property
    def best(self) -> TrialRecord | None:
        """The trial of the best settings."""
        return self._trial(self.best_number)

    @property
    def baseline_rate(self) -> float | None:
        """Samples per second of the baseline's trial; None when not measured."""
        measured = self.baseline.result.measurement if self.baseline is not None else None
        return measured.samples_per_second if measured is not None else None

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of all trials; for a variable that differed, every value."""
        values: dict[str, list[str]] = {}
        for trial in self.trials:
            for name, value in trial.environment.items():
                known = values.setdefault(name, [])
                if value not in known:
                    known.append(value)
        return {name: " | ".join(known) for name, known in sorted(values.items())}

    def _trial(self, number: int | None) -> TrialRecord | None:
        return next((trial for trial in self.trials if trial.number == number), None)
