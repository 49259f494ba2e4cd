"""Seams attached before the trial's settings are known, because the script may build objects early."""

from __future__ import annotations

from typing import Protocol

from autotune.trial.loader.loaders import Loaders
from autotune.trial.report import rank_report
from autotune.trial.step import schedulers
from autotune.trial.step.steps import Steps


class Endings(Protocol):
    """Receiver of the script's end."""

    def report_error(self, error: BaseException) -> None:
        """Reports the exception that ended the script."""

    def report_end(self) -> None:
        """Reports that the script ended by itself."""


class Prelude:
    """Watches the script's optimizers, schedulers and end; keeps the watches of all measurements of this process."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.loaders = Loaders()
        self.session: Endings | None = None
        """Receiver of the script's end; None before the settings are known, when only the tuner watches for the end."""
        self._end_watch = rank_report.EndWatch(self._error, self._end)

    def attach(self) -> None:
        """Attaches to torch."""
        self.steps.watch_optimizers()
        schedulers.keep_last_rate()
        self._end_watch.install()

    def loader_has_workers(self) -> None:
        """Notes that a loader has registered workers with the process's exit; the report still comes first."""
        self._end_watch.come_first()

    def _error(self, error: BaseException) -> None:
        if self.session is not None:
            self.session.report_error(error)

    def _end(self) -> None:
        if self.session is not None:
            self.session.report_end()
