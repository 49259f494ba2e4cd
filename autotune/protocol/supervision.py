"""Messages between the tuner and the processes around a trial. Standard library only.

Every supervisor loads this module before its trial starts, so the module imports the codec alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from autotune.protocol.codec import from_plain, to_plain

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPlan:
    """A process's view of the file systems through copy-on-write layers; all paths are real paths."""

    root: str
    """An empty folder for the process's own tree of mounts."""
    workspace: str
    """Folder of the study, with all layers."""
    upper: str
    """Folder for the writes of the process."""
    between: tuple[str, ...] = ()
    """Earlier values of `upper`, nearest first: the process reads these layers."""
    plain: tuple[str, ...] = ()
    """Folders and files for real writes."""
    covered: tuple[str, ...] = ()
    """Folders with a layer of their own, although an earlier process wrote to them for real."""
    read_only: tuple[str, ...] = ()
    """Files and folders without writes."""
    known: tuple[str, ...] = ()
    """Folders that an ordinary user's scripts write to. For an ordinary user the kernel copies no folder of another
    user, so the layer gets the folders above these beforehand."""
    has_pids: bool = True
    """Whether the process has a process namespace, and a view of /proc to match."""
    has_own_memory: bool = True
    """Whether the process has shared memory of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisorSpec:
    """The order to run one trial, in the file `supervisor.json` of the trial's folder."""

    command: tuple[str, ...]
    """The program and its arguments."""
    cwd: str
    """Working directory of the script."""
    log: str
    """File for the script's output."""
    layers: LayerPlan | None = None
    """View of the file systems; None without layers."""
    writable: tuple[str, ...] | None = None
    """Places that Landlock leaves writable; None without Landlock."""
    earlier_log: str | None = None
    """Output of the prelude, for the head of the log; None without a prelude."""
    servers: tuple[int, ...] = ()
    """Process ids, as the system counts, of the processes that the trial is forked from."""
    started_as: tuple[str, ...] = ()
    """The command with the options of its interpreter, for a forked trial."""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """Variables in which a forked trial differs from its server; None removes a variable."""
    is_prelude: bool = False
    """Whether trials are to be forked from this process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSpec:
    """The order to start one fork server, in the file `server.json` of the server's folder."""

    folder: str
    """The server's folder."""
    layers: LayerPlan | None
    """View of the file systems; None without layers."""
    writable: tuple[str, ...] | None
    """Places that Landlock leaves writable; None without Landlock."""
    imports: tuple[str, ...]
    """Modules for the server to import."""
    own_modules: tuple[str, ...]
    """Names of modules in the script's own folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisorReport:
    """The end of a trial's command, as the supervisor saw it."""

    status: int | None = None
    """Wait status of the command; None when the command did not start, or did not end by itself."""
    error: str = ""
    """Reason why the command could not be started."""


def write_message(path: Path, message: SupervisorSpec | ServerSpec) -> None:
    """Writes a message to a file.

    Raises:
        OSError: The file cannot be written.
    """
    path.write_text(json.dumps(to_plain(message)))


def read_message(kind: type[T], text: str | bytes) -> T:
    """The message in a JSON text.

    Raises:
        ValueError: The text is no message of this kind.
    """
    plain: Any = json.loads(text)
    return from_plain(kind, plain)
