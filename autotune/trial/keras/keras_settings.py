"""Puts settings in force in a Keras script, and reads the values back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.protocol.job import TrialJob
from autotune.settings import GROUP_OF_FIELD, SETTINGS, Group, KerasSeams, Setting, Value
from autotune.settings.fit_arrays import batch_size_in
from autotune.trial.observed_values import Observed

UNSEEN = "unknown, since nothing of the training has shown it"
"""Comment on a setting asked for that cannot be read back."""


class KerasSettings:
    """The settings of a job at Keras' seams.

    Left alone are the script's own values, the groups claimed by the script, and fields mapped to arguments.

    Args:
        job: A job with settings.
    """

    def __init__(self, job: TrialJob) -> None:
        assert job.request.settings is not None and job.script_settings is not None and job.facts is not None
        is_cpu = job.device == "cpu"
        self.claims: set[Group] = set(job.facts.claims)
        self._asked = job.request.settings.canonical(device_is_cpu=is_cpu)
        self._own = job.script_settings.canonical(device_is_cpu=is_cpu)
        self._mapped = frozenset(job.mapped)
        self._model: Any = None
        self._fit: Mapping[str, Any] = {}

    def at_import(self) -> None:
        """Puts settings of the process in force, after the import of Keras."""
        for setting, seams in self._changed():
            if seams.at_import is not None:
                seams.at_import(getattr(self._asked, setting.name))

    def at_compile(self, arguments: dict[str, Any]) -> None:
        """Changes the arguments of `Model.compile`."""
        for setting, seams in self._changed():
            if seams.at_compile is not None:
                seams.at_compile(getattr(self._asked, setting.name), arguments)

    def at_fit(self, model: Any, arguments: dict[str, Any]) -> None:
        """Changes the arguments of `Model.fit`, and keeps the result to read settings back."""
        size = batch_size_in(arguments)
        if size is not None:
            arguments["batch_size"] = size  # As Keras decides, also from the number of steps.
        for setting, seams in self._changed():
            if seams.at_fit is not None:
                seams.at_fit(getattr(self._asked, setting.name), arguments)
        self._model, self._fit = model, arguments

    def note_model(self, model: Any) -> None:
        """Keeps the model that trains, to read settings back."""
        self._model = model

    def observed(self) -> Observed:
        """Settings in force; a setting asked for without a reading counts as not in force."""
        seen = Observed()
        if self._model is None:
            return seen
        seen.values.update(readings(self._model, self._fit))
        for setting, _ in self._changed():
            if setting.name not in seen.values:
                seen.note(setting.name, None, UNSEEN)
        return seen

    def _changed(self) -> list[tuple[Setting, KerasSeams]]:
        """Settings to put in force, with their seams, in the registry's order."""
        return [
            (setting, setting.keras)
            for setting in SETTINGS
            if setting.keras is not None
            and setting.name not in self._mapped
            and GROUP_OF_FIELD[setting.name] not in self.claims
            and getattr(self._asked, setting.name) != getattr(self._own, setting.name)
        ]


def readings(model: Any, fit: Mapping[str, Any]) -> dict[str, Value | None]:
    """All settings of a Keras script that show, by field.

    Args:
        model: The model that trains.
        fit: The arguments of `fit`, by name; empty for single batches.
    """
    values = {setting.name: setting.keras.read(model, fit) for setting in SETTINGS if setting.keras is not None}
    return {name: value for name, value in values.items() if value is not None}
