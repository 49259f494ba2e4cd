"""The records of the queue, as plain data: jobs, workers and leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class JobStatus(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_active(self) -> bool:
        """Whether the job waits for a worker or has a worker."""
        return self in (JobStatus.QUEUED, JobStatus.RUNNING)


class Wish(StrEnum):
    """What the user wants of an active job."""

    NOTHING = ""
    PAUSE = "pause"
    STOP = "stop"
    CANCEL = "cancel"

    @property
    def status(self) -> JobStatus:
        """The state of the job when the wish is fulfilled."""
        return {
            Wish.PAUSE: JobStatus.PAUSED,
            Wish.STOP: JobStatus.STOPPED,
            Wish.CANCEL: JobStatus.CANCELLED,
        }.get(self, JobStatus.QUEUED)


class Order(StrEnum):
    """The answer to a heartbeat."""

    CONTINUE = "continue"
    STOP = "stop"
    """End after the running trial."""
    CANCEL = "cancel"
    """End at once."""


class LeaseState(StrEnum):
    """State of a lease."""

    HELD = "held"
    DONE = "done"
    """The search ended with a result."""
    STOPPED = "stopped"
    """The search ended early, on request or by drain of the worker; a resume goes on."""
    FAILED = "failed"
    """The search ended with an error."""
    LOST = "lost"
    """The worker gave no sign of life."""


class WorkerStatus(StrEnum):
    """State of a worker, apart from signs of life."""

    READY = "ready"
    DRAINING = "draining"
    """Gets no further job; a running search ends after the running trial."""
    QUARANTINED = "quarantined"
    """Failed where other machines of the class succeed; gets no job until enabled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRequest:
    """A search as submitted; checked before."""

    study: str
    """Name of the study; `{id}` stands for the id of the job."""
    project: str
    script: str
    """Path relative to the project's folder."""
    args: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options by key, as in a study file."""
    machines: int = 1
    """Number of workers of one class that search together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One job of the queue."""

    number: int
    job_id: str
    request: JobRequest
    status: JobStatus
    wanted: Wish
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    machine_class: str | None = None
    """Class of the first worker; None before."""
    folder: str | None = None
    """Real path of the project on the first worker; None before."""
    num_events: int = 0
    progress: Mapping[str, Any] | None = None
    """The latest event `trial_progress`."""
    exit_code: int | None = None
    message: str = ""
    """Reason for a failure, or for another attempt; empty without."""
    document: Mapping[str, Any] | None = None
    """The document of `search --json`."""
    config: str | None = None
    """The tuned config, as YAML."""

    @property
    def study(self) -> str:
        """Name of the study."""
        return self.request.study


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecord:
    """One worker: a slot of a machine."""

    worker_id: str
    session: str
    """Random name of the worker's process."""
    machine: str
    """Name of the machine, equal for all workers of one machine."""
    machine_class: str
    """Class of comparable machines."""
    description: Mapping[str, Any]
    """The machine's properties, for people."""
    devices: tuple[str, ...]
    """Devices of the slot; empty = no device beside the CPU."""
    cpus: tuple[int, ...]
    """Numbers of the usable cores."""
    projects: Mapping[str, str]
    """Real paths of the projects on the machine, by name."""
    status: WorkerStatus = WorkerStatus.READY
    reason: str = ""
    """Reason for a quarantine; empty without."""
    registered_at: datetime
    seen_at: datetime

    def is_independent_of(self, other: WorkerRecord) -> bool:
        """Whether trials of both workers can run at once: no core and no device in common."""
        if self.machine != other.machine:
            return True
        are_on_devices = bool(self.devices) == bool(other.devices)
        return (
            are_on_devices and not set(self.devices) & set(other.devices) and bool(self.cpus) and bool(other.cpus)
        ) and not set(self.cpus) & set(other.cpus)


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRecord:
    """The right of a worker to run a job."""

    lease_id: str
    job_number: int
    worker_id: str
    session: str
    fence: int
    """Grows with every grant of the job; results with an older fence are not counted."""
    state: LeaseState
    granted_at: datetime
    heartbeat_at: datetime
    ended_at: datetime | None = None
    num_events: int = 0
    exit_code: int | None = None
    message: str = ""
    is_shared: bool | None = None
    """Whether another worker of the class failed on the job too; None before the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseEnd:
    """The end of a search, as told by a worker."""

    state: LeaseState
    """DONE, STOPPED or FAILED."""
    exit_code: int | None = None
    message: str = ""
    document: Mapping[str, Any] | None = None
    config: str | None = None
    is_repeatable: bool = False
    """Another machine may succeed: the failure may be the machine's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeat:
    """A sign of life of a worker with a lease, with new events of the search."""

    lease_id: str
    fence: int
    first_event: int = 0
    """Number of events of this lease before the new events; events received before are skipped."""
    new_events: tuple[str, ...] = ()
    """JSON texts."""
    progress: str | None = None
    """JSON text of the latest progress; None = unchanged."""
