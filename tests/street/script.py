"""A row of the table: a public training script."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "gpu", "2gpu"]
DEVICES: tuple[Device, ...] = ("cpu", "gpu", "2gpu")
PROCESSES: Mapping[Device, int] = {"cpu": 1, "gpu": 1, "2gpu": 2}
"""Processes training together, by device; a launcher starts them unless the script does."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How a script's own output tells the progress of training."""

    pattern: str
    """A regular expression, searched in every line. The group `at` is the position; without the group every matching
    line counts 1. Groups `epoch` and `of`, the length of an epoch, are optional. The group `seconds` is the time that
    the script itself took for the training of one epoch, with the loader's start and without validation; each line is
    an epoch then, and the rate is by these times."""
    per: float = 1.0
    """Samples per unit of the position, or of an epoch with the group `seconds`, all processes together; above 0."""
    has_open_line: bool = False
    """True for lines that end with the beginning of the next: a line counts when its text comes. `at` is needed."""
    ends_epoch: bool = False
    """True for one line at the end of each epoch: the last two lines count although an epoch may not have settled."""
    longest_step_s: float = math.inf
    """Seconds between two lines that are training at most; a longer time, such as cuDNN's search for the kernels of a
    new size, belongs to no rate. The lines that follow count, although workers have built their batches meanwhile."""

    def search(self, line: str) -> re.Match[str] | None:
        """The match in one line of output, or None."""
        return re.search(self.pattern, line)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Made-up data in a script's format."""

    name: str
    """Name of the folder; rows with the same name share the data."""
    make: Callable[[Path], None]
    """Fills an empty folder without a download."""


@dataclass(frozen=True)
class Source:
    """A public repository at one commit."""

    repository: str
    """Owner and name."""
    commit: str

    @property
    def folder(self) -> str:
        """Name of its checkout's folder."""
        return self.repository.replace("/", "+")


@dataclass(frozen=True, kw_only=True)
class Script:
    """A public training script with the command lines of a user and of an expert.

    In arguments `{data}` is the folder of the data, `{out}` an empty folder, `{cores}` the usable cores per process and
    `{gpu}` the first GPU's number.
    """

    name: str
    kind: str
    """A family of KINDS in `tests.street.rows`."""
    source: Source
    script: str
    """Path of the script within the working directory."""
    arguments: Mapping[Device, str]
    """The arguments of a user, by device."""
    progress: Mapping[Device, Progress] | Progress | None
    expert: Mapping[Device, str] = field(default_factory=dict)
    """The arguments of an expert; `+ ...` follows the arguments of a user."""
    no_expert: str = ""
    """Reason for the lack of an expert's arguments on further devices."""
    settle_s: float | None = None
    """Seconds to leave out before counting, in place of the plan's: more for a script that is slow at first by itself,
    fewer for short epochs with long pauses between. Full queues of a loader and compilation may ask for more."""
    window_s: float | None = None
    """Seconds to count, in place of the plan's."""
    no_progress: str = ""
    """Reason for output without progress."""
    data: Mapping[Device, Data] | Data | None = None
    no_data: str = ""
    """Reason for a row without data."""
    launcher: Mapping[Device, str] = field(default_factory=dict)
    """The launcher by device, such as `torchrun --nproc-per-node=2`; python for devices without an entry."""
    folder: str = "."
    """Working directory, within the repository."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Links to make: paths in the repository, and their targets in the data."""
    folders: tuple[str, ...] = ()
    """Folders in the repository that the script expects to be there."""
    packages: tuple[str, ...] = ()
    """Modules imported by the script, beside torch."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set by a user. Placeholders: as in arguments, `{repository}`, and `{stand_ins}`, modules in
    the place of services."""
    refusal: str = ""
    """A regular expression for the search's words, for scripts to be refused by name."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of the row."""
        return tuple(self.arguments)

    def expert_on(self, device: Device) -> str | None:
        """The arguments of an expert on the device; None without a difference to a user's."""
        typed = self.expert.get(device)
        if typed is not None and typed.startswith("+ "):
            return f"{self.arguments[device]} {typed[2:]}"
        return typed

    def progress_on(self, device: Device) -> Progress | None:
        """The progress on the device; None for output without progress."""
        return self.progress[device] if isinstance(self.progress, Mapping) else self.progress

    def data_on(self, device: Device) -> Data | None:
        """The data for the device; None for a script without data."""
        return self.data[device] if isinstance(self.data, Mapping) else self.data
