"""Interfaces of runners: measuring what a job requests, and the record of a trial's start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from autotune.model.gauges import Gauges
from autotune.model.result import ProbeResult, StartKind, TrialResult
from autotune.protocol.job import TrialJob


class Run(Protocol):
    """A probe, or the measurement for one request, under way."""

    def poll(self) -> bool:
        """Checks limits and memory once, without waiting; True when the run is over."""

    def gauges(self) -> Gauges | None:
        """Readings of the last `poll`; None without readings."""

    def cancel(self) -> None:
        """Ends all processes of the run; the result is judged as interrupted."""

    def result(self, *, profiles_to: Path | None = None) -> TrialResult:
        """The judged result of a finished trial; to be called once.

        Args:
            profiles_to: Folder for the profiles of a diagnosis; None = leave the profiles.

        Raises:
            OSError: The profiles cannot be written.
        """

    def probe_result(self) -> ProbeResult:
        """The result of a finished probe; to be called once."""


class Runner(Protocol):
    """Measures settings, one request at a time.

    A job holds everything constant for a process, and a request (`MeasurementRequest`) with the settings to measure. A
    runner may answer several requests in one process if the jobs differ in nothing but the request.
    """

    def start(self, job: TrialJob) -> Run:
        """Starts to answer the job's request. The result tells of a command that cannot be started."""

    def close(self) -> None:
        """Ends the processes kept for later runs; a later `start` makes new ones."""


@runtime_checkable
class KeepingRunner(Runner, Protocol):
    """A runner that may keep a process of the script between two requests."""

    @property
    def has_process(self) -> bool:
        """Whether a process of the script waits for the next request, and holds memory of the device."""

    def can_switch(self, before: TrialJob, job: TrialJob) -> bool:
        """Whether a process started for the job `before` can answer the other job's request."""

    def goes_on(self, job: TrialJob) -> bool:
        """Whether the waiting process can answer the job's request; False without a waiting process."""


class Server(Protocol):
    """A process that has measured, and waits for another request."""

    def next(self, job: TrialJob, number: int) -> ServedRun:
        """Asks for another measurement.

        Args:
            job: The job.
            number: The number of the measurement in the process, from 1.

        Raises:
            OSError: The request cannot be written.
        """

    def end(self) -> None:
        """Ends the process."""


class ServedRun(Run, Protocol):
    """A run whose process may go on with other settings."""

    @property
    def serving(self) -> Server | None:
        """The process, if waiting for another request; to be read after `result`."""


class Supervisor(Protocol):
    """A process that runs a trial, takes orders on standard input, and reports the end on standard output."""

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """Pipe for orders."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Pipe of the report."""

    def poll(self) -> int | None:
        """None while the supervisor runs."""

    def kill(self) -> None:
        """Kills the supervisor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The way in which a trial was started."""

    kind: StartKind
    reason: str = ""
    """Why the start was no faster."""
    server_pids: tuple[int, ...] = ()
    """Ancestors of a forked trial, nearest first; pages of the ancestors count as the trial's."""
    server_s: float = 0.0
    """Seconds for the start of the ancestors, in the first trial of each; no part of the trial's time."""
    saved_s: float = 0.0
    """Seconds of work by the ancestors, not repeated by the trial."""
    stray_folder: Path | None = None
    """Folder in the environment of the trial's processes; None = the trial's own."""
    judged: Callable[[TrialResult], None] = lambda result: None
    """Receives the result."""
