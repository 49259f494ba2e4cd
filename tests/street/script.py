"""What the table says of one public training script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "gpu", "2gpu"]
DEVICES: tuple[Device, ...] = ("cpu", "gpu", "2gpu")
PROCESSES: Mapping[Device, int] = {"cpu": 1, "gpu": 1, "2gpu": 2}
"""Processes that train together; a script that starts none by itself has a launcher."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How a script's own output tells how far training is."""

    pattern: str
    """A regular expression, searched in every line. Its group `at` is the position; without the group every matching
    line counts as one. Groups `epoch` and `of`, the length of an epoch, are optional."""
    per: float = 1.0
    """Samples (or whatever the row counts) per unit of the position, all processes together; above 0."""
    spans_epochs: bool = False
    """The time between two epochs counts as training: the script does nothing else there. Needs `epoch` and `of`."""

    def search(self, line: str) -> re.Match[str] | None:
        """The match in one line of output, or None."""
        return re.search(self.pattern, line)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Made-up data in the format that a script reads."""

    name: str
    """Name of the folder; rows with the same name share the data."""
    make: Callable[[Path], None]
    """Fills an empty folder; it downloads nothing."""


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
    """One public training script, how a user starts it, and how somebody who knows would.

    In arguments `{data}` is the folder of the data, `{out}` an empty folder, `{cores}` the usable cores per process and
    `{gpu}` the first GPU's number.
    """

    name: str
    kind: str
    """A family of KINDS in `tests.street.rows`."""
    source: Source
    script: str
    """Path of the script within its working directory."""
    arguments: Mapping[Device, str]
    """What a user types, by the devices that the script is run on."""
    progress: Mapping[Device, Progress] | Progress | None
    expert: Mapping[Device, str] = field(default_factory=dict)
    """What somebody who knows types in place of the arguments; `+ ...` is typed after them."""
    no_expert: str = ""
    """Why an expert would type nothing else, for devices without an entry above."""
    no_progress: str = ""
    """Why its output tells nothing of progress, where it does not."""
    data: Mapping[Device, Data] | Data | None = None
    no_data: str = ""
    """Why the script needs no data, where it has none."""
    launcher: Mapping[Device, str] = field(default_factory=dict)
    """The command that starts the script, such as `torchrun --nproc-per-node=2`; python where there is no entry."""
    folder: str = "."
    """Working directory, within the repository."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Paths in the repository that are links to paths in the data, where the script wants its data there."""
    packages: tuple[str, ...] = ()
    """Modules beside torch that the script imports."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that a user sets; their placeholders are those of the arguments, `{repository}`, and `{stand_ins}`:
    modules that take the place of services."""
    refusal: str = ""
    """A regular expression that the search's words must match, where a refusal by name is the right answer."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that the script is run on."""
        return tuple(self.arguments)

    def expert_on(self, device: Device) -> str | None:
        """What somebody who knows types on the device; None where nothing would be different."""
        typed = self.expert.get(device)
        if typed is not None and typed.startswith("+ "):
            return f"{self.arguments[device]} {typed[2:]}"
        return typed

    def progress_on(self, device: Device) -> Progress | None:
        """How progress is counted on the device; None where it cannot be."""
        return self.progress[device] if isinstance(self.progress, Mapping) else self.progress

    def data_on(self, device: Device) -> Data | None:
        """The data for the device; None where the script needs none."""
        return self.data[device] if isinstance(self.data, Mapping) else self.data
