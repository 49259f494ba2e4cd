"""What every runner is: `start(job) -> run`, and what can be done with a run."""

from __future__ import annotations

from typing import Protocol

from autotune.model.gauges import Gauges
from autotune.model.result import ProbeResult, TrialResult
from autotune.protocol.job import TrialJob


class Run(Protocol):
    """One started run of the user's script."""

    def poll(self) -> bool:
        """Looks once at its limits and its memory; whether it is over. Never waits."""

    def gauges(self) -> Gauges | None:
        """How it looks, by the readings of its last `poll`; None where nobody looks."""

    def cancel(self) -> None:
        """Ends it now, with all that it started; it is then judged as interrupted."""

    def result(self) -> TrialResult:
        """The judged result of a trial that is over; to be called once."""

    def probe_result(self) -> ProbeResult:
        """What a probe that is over taught; to be called once."""


class Runner(Protocol):
    """Starts runs, one at a time."""

    def start(self, job: TrialJob) -> Run:
        """Starts one run. A command that cannot be started is a result like any other."""
