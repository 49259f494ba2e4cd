"""The needs of a Ray node before the first trial. Imports nothing of Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.study.machine_check import Finding, Status

SLOT = "autotune_slot"
"""Custom resource of a node for a worker; each node has a single unit."""
SUBREAPER = "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper"
MEMORY_MONITOR = "RAY_memory_monitor_refresh_ms"
AUTH = "RAY_AUTH_MODE"
START = f"{SUBREAPER}=true {MEMORY_MONITOR}=0 {AUTH}=token ray start ... --resources '{{\"{SLOT}\": 1}}'"
"""The command for a node that passes."""
_RAYLET = "raylet"


@dataclass(frozen=True, slots=True)
class Missing:
    """A variable missing at `ray start`."""

    setting: str
    """The variable with its value, as in a shell."""
    reason: str
    """The consequence, as a sentence."""
    is_fatal: bool
    """True when trials would go wrong."""


def missing_at_start(environ: Mapping[str, str]) -> tuple[Missing, ...]:
    """Variables missing in the environment of a raylet, the process of `ray start` on a node."""
    return tuple(_missing(environ))


def _missing(environ: Mapping[str, str]) -> Iterator[Missing]:
    if environ.get(SUBREAPER, "").lower() not in ("true", "1"):
        yield Missing(f"{SUBREAPER}=true", "After a killed actor its trial would go on and hold the device.", True)
    if environ.get(MEMORY_MONITOR) != "0":
        words = "Ray's memory monitor would kill a trial near the cap, which is ours to judge."
        yield Missing(f"{MEMORY_MONITOR}=0", words, True)
    if environ.get(AUTH) != "token":
        yield Missing(f"{AUTH}=token", "Everybody who reaches the cluster's port may run code on the node.", False)


def environment_of(pid: int) -> dict[str, str]:
    """The environment of a process at the start.

    Raises:
        OSError: The process is gone, or belongs to another user.
    """
    content = Path(f"/proc/{pid}/environ").read_bytes()
    pairs = (os.fsdecode(entry).partition("=") for entry in content.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def users_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment at the start of the node, without Ray's own variables.

    Ray sets OMP_NUM_THREADS and hides devices in an actor's environment. A script would then train with one thread,
    and the baseline would be wrong.
    """
    return {name: value for name, value in environ.items() if not name.startswith("RAY_")}


def local_raylets() -> list[int]:
    """Process ids of the raylets of this user on this machine."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = folder.joinpath("cmdline").read_bytes().split(b"\0", 1)
            is_ours = folder.stat().st_uid == os.geteuid()
        except OSError:
            continue
        if is_ours and Path(os.fsdecode(words[0])).name == _RAYLET:
            found.append(int(folder.name))
    return sorted(found)


def ray_findings() -> Iterator[Finding]:
    """Findings of `autotune doctor` about Ray nodes of this user on this machine; nothing without a node."""
    for pid in local_raylets():
        try:
            found = missing_at_start(environment_of(pid))
        except OSError:
            continue
        if not found:
            yield Finding(name="ray", status=Status.OK, text=f"the node (process {pid}) can take a worker")
        for gap in found:
            status = Status.PROBLEM if gap.is_fatal else Status.WARNING
            text = f"the node (process {pid}) was started without {gap.setting}: {gap.reason.rstrip('.')}"
            yield Finding(name="ray", status=status, text=text, remedy=f"Start the node so: {START}")
