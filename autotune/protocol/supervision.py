"""Messages between the tuner and a trial's supervisor. Standard library only.

Every supervisor loads this module before the trial starts, so the module imports nothing else of ours, and messages are
named tuples: `dataclasses` takes longer to import than the rest of a supervisor's program.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple


class Order(bytes, Enum):
    """An order of the tuner on the supervisor's standard input; end-of-file is the tuner's death."""

    REPORT_AND_END = b"t"
    """End the trial, with time for a last report."""
    END = b"k"
    """End the trial at once."""


class LayerPlan(NamedTuple):
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
    is_cut_off: bool = False
    """Whether the process has a network of its own, with the loopback alone."""


class RedirectionPlan(NamedTuple):
    """Folders with redirected writes, for a trial without overlay mounts; in the trial's environment."""

    covered: tuple[str, ...]
    """Folders with redirected writes."""
    layers: tuple[str, ...]
    """Folders of the layers, nearest first; writes go to the first."""
    spared: tuple[str, ...]
    """Folders and files without redirection: the trial's own, and the user's writable places."""


class SupervisorSpec(NamedTuple):
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
    environment: Mapping[str, str | None] = MappingProxyType({})
    """Variables in which a forked trial differs from its server; None removes a variable."""
    is_prelude: bool = False
    """Whether trials are to be forked from this process."""


class SupervisorReport(NamedTuple):
    """The end of a trial's command, as the supervisor saw it."""

    status: int | None = None
    """Wait status of the command; None when the command did not start, or did not end by itself."""
    error: str = ""
    """Reason why the command could not be started."""
