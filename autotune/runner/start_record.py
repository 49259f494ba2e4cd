"""How a trial is started: the process that runs it, and the record of where it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from autotune.model.result import TrialResult


class Supervisor(Protocol):
    """The process that runs a trial; takes orders on its standard input, and says the ending on its output."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """Where it is given orders."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Where it says how the trial ended."""

    def poll(self) -> int | None:
        """None while it runs."""

    def kill(self) -> None:
        """Kills it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How a trial was started."""

    kind: str
    """cold, forked or prepared."""
    reason: str = ""
    """Why it was not faster."""
    server_pids: tuple[int, ...] = ()
    """The processes that it was forked from, one by way of the other, whose pages are the trial's as well."""
    server_s: float = 0.0
    """What they took to start, in the first trial that is forked from them; it is no part of the trial's time."""
    saved_s: float = 0.0
    """What they took for what this trial does not do again."""
    stray_folder: Path | None = None
    """The folder that processes of the trial carry in their environment, where it is not the trial's own."""
    judged: Callable[[TrialResult], None] = lambda result: None
    """Told of the result."""
