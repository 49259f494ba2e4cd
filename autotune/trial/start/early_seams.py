"""What a trial attaches to torch before its settings are known: it must be there before the script builds anything."""

from __future__ import annotations

from typing import Protocol

from autotune.trial.report import rank_report
from autotune.trial.step import schedulers
from autotune.trial.step.steps import Steps


class Endings(Protocol):
    """Who is told that the script has ended."""

    def report_error(self, error: BaseException) -> None:
        """It ended with an exception."""

    def report_end(self) -> None:
        """It ended by itself."""


class Prelude:
    """The optimizers that the script builds, its schedulers, and the ways in which it can end."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.session: Endings | None = None
        """None while the settings are not known: then nobody asks how the script ended but the tuner."""
        self._end_watch = rank_report.EndWatch(self._error, self._end)

    def attach(self) -> None:
        """Attaches to torch."""
        self.steps.watch_optimizers()
        schedulers.keep_last_rate()
        self._end_watch.install()

    def loader_has_workers(self) -> None:
        """Notes that a loader has registered its workers with the end of the process: the report still comes first."""
        self._end_watch.come_first()

    def _error(self, error: BaseException) -> None:
        if self.session is not None:
            self.session.report_error(error)

    def _end(self) -> None:
        if self.session is not None:
            self.session.report_end()
