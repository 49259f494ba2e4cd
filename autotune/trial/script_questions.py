"""Answers of a session under known settings to a script with calls of the public API."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.protocol.job import TrialJob
from autotune.settings import Group, Settings, Value
from autotune.trial.apply.applied import AppliedSettings
from autotune.trial.observed_values import Observed


class ScriptQuestions:
    """Base of sessions that run a script under known settings; the session's constructor fills the attributes."""

    _job: TrialJob
    _applied: AppliedSettings
    _set_by_script: Observed
    """Values of settings put in force by the script."""

    @property
    def settings(self) -> Settings | None:
        """The settings of this run; None for the script's own: the defaults of the script's call hold."""
        return None if self._job.request.settings == self._job.script_settings else self._job.request.settings

    def claim(self, group: Group) -> None:
        """Notes that the script applies this group itself."""
        self._applied.claims.add(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Does nothing: the knobs are known from the probe."""

    def observe(self, field: str, value: Value) -> None:
        """Notes a setting put in force by the script."""
        self._set_by_script.note(field, value)
