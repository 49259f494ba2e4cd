"""The stored records, as plain data: studies, overviews of trials, and owners of leases."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from autotune.host import boot_id, process_start_ticks
from autotune.model.checks import check_aware
from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.trial_records import TrialRecord
from autotune.settings import Settings
from autotune.spec import SearchSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyRecord:
    """One study. Fields from the probe are None before the probe."""

    name: str
    spec: SearchSpec
    """The user's request. Secret arguments of the command are stored as `***`. The storage is not stored: a read fills
    in the URL of the database."""
    fingerprint: dict[str, Any]
    """Values to be equal for a resume, as plain JSON; digests, never secrets."""
    created_at: datetime
    status: str = "running"
    """`running`, or the status of the result."""
    memory_cap_bytes: int | None = None
    facts: ScriptFacts | None = None
    script_settings: Settings | None = None
    """The script's own settings."""
    refused: tuple[tuple[str, str], ...] = ()
    """(setting, reason) for everything left out of the space."""
    layer_folder: str = ""
    """Folder of the study's copy-on-write layer, for people; empty before. No program follows the path."""
    spent_s: float = 0.0
    """Wall time of all runs of the study together."""
    result: dict[str, Any] | None = None
    """The document of `--json`; None before the first result."""

    def __post_init__(self) -> None:
        """Refuses a moment without a time zone, and an empty name."""
        check_aware("created_at", self.created_at)
        if not self.name:
            raise ValueError("a study needs a name")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialOverview:
    """The part of a study's trials in lists of studies; small for any number of trials."""

    outcomes: Mapping[Outcome, int]
    """Number of ended trials by outcome."""
    baseline: TrialRecord | None
    """The latest trial of the script's own settings."""
    best: TrialRecord | None
    """The fastest trial measured in full; among equals the first."""

    @property
    def num_finished(self) -> int:
        """Number of trials with a final outcome."""
        return sum(num for outcome, num in self.outcomes.items() if outcome.is_finished)


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A process searching a study, named without confusion with any later process."""

    host: str
    boot_id: str
    """Boot of the kernel and process namespace of the pid; empty if unknown."""
    pid: int
    start_ticks: int | None
    """Kernel's start time of the process; None if unknown."""

    @property
    def machine(self) -> str:
        """Name of the machine, equal in all containers: the kernel's boot, or else the host's name."""
        return self.boot_id.partition(" ")[0] or self.host

    @classmethod
    def this_process(cls) -> Self:
        """The calling process."""
        pid = os.getpid()
        return cls(host=socket.gethostname(), boot_id=_boot(), pid=pid, start_ticks=process_start_ticks(pid))

    def is_alive_here(self) -> bool | None:
        """Whether the process runs on this machine.

        None if unknown: the process belongs to another host, boot or container, or the kernel hides the process.
        """
        if self.start_ticks is None or not self.boot_id:
            return None
        if self.host != socket.gethostname() or self.boot_id != _boot():
            return None
        ticks = process_start_ticks(self.pid)
        if ticks is None:
            return None if _is_hidden(self.pid) else False
        return ticks == self.start_ticks and not _is_zombie(self.pid)


def _boot() -> str:
    # Containers on one machine share the boot id, and with host networking the host's name, but no process ids.
    boot = boot_id()
    try:
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}" if boot else ""
    except OSError:
        return boot


def _is_hidden(pid: int) -> bool:
    """Whether the process runs, hidden from /proc (mounted with hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_zombie(pid: int) -> bool:
    # A killed tuner stays in the process table until its parent asks for the exit status.
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in ("Z", "X")
