"""Applies a tuned config to real training by Keras, with the seams of a trial and without a meter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from autotune.protocol.job import TrialJob
from autotune.settings import GROUP_OF_FIELD, Group, Settings, Value, own_lines
from autotune.trial.keras.fit_seams import Arguments
from autotune.trial.keras.keras_session import KerasSession
from autotune.trial.keras.keras_settings import KerasSettings
from autotune.trial.observed_values import Observed
from autotune.trial.report import rank_report
from autotune.trial.run_words import EXIT_CODE, refusal_text
from autotune.verdict.in_force import missed_settings


class KerasRun(KerasSession):
    """Applies the settings, reports the settings in force once on stderr, and ends a training with a missed setting.

    The report comes after the first training call: a training under other settings ends at once.
    """

    def __init__(self, job: TrialJob) -> None:
        super().__init__()
        assert job.request.settings is not None and job.script_settings is not None and job.facts is not None
        self._job, self._settings = job, KerasSettings(job)
        self._is_of_keras = bool(job.facts.keras is not None and job.facts.keras.version)
        self._set_by_script = Observed()
        self._changed = tuple(
            name for name in job.request.settings.differences(job.script_settings) if name in GROUP_OF_FIELD
        )
        self._is_checked = False

    @property
    def settings(self) -> Settings | None:
        """The settings of this run."""
        return self._job.request.settings

    def claim(self, group: Group) -> None:
        """Notes that the script applies this group itself."""
        self._settings.claims.add(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Does nothing: the knobs are known from the search."""

    def observe(self, field: str, value: Value) -> None:
        """Notes a setting put in force by the script."""
        self._set_by_script.note(field, value)

    def attached(self) -> None:
        """Puts the settings of the process in force."""
        self._settings.at_import()

    def before_compile(self, arguments: Arguments) -> None:
        """Puts settings in force in a model."""
        self._settings.at_compile(arguments)

    def before_fit(self, model: Any, arguments: Arguments) -> None:
        """Puts settings in force in the data."""
        self._settings.at_fit(model, arguments)
        super().before_fit(model, arguments)

    def trained(self, outputs: Any, began: float) -> None:
        """Checks the settings once, after the first training call."""
        if self._is_checked or not self._is_of_keras:
            return
        self._is_checked = True
        self._settings.note_model(self.model)
        observed = self._settings.observed()
        observed.update(self._set_by_script)
        differences = missed_settings(self._job, observed.values).items()
        missed = {name: asked for name, (asked, _) in differences if name in observed.values}
        if missed:
            sys.stderr.write(refusal_text(missed, observed, own_lines(missed, self._job.config)))
            rank_report.end_process(EXIT_CODE)
        elif rank_report.identity()[0] == 0:
            in_force = ", ".join(f"{name} {observed.values[name]}" for name in self._changed if name in observed.values)
            sys.stderr.write(f"autotune: in force: {in_force or 'the settings of the script itself'}\n")
