"""Load of the machine from /proc and the cgroups: growing counters, to be read twice. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autotune.host import PROC, cgroup_folders, meminfo_bytes

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""user, nice, system, irq, softirq and steal in a line of /proc/stat; idle, iowait and guest times are left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """One reading; None without a counter on this system."""

    at_s: float
    """Monotonic time of the reading."""
    cpu_pressure_s: float | None = None
    io_pressure_s: float | None = None
    memory_pressure_s: float | None = None
    """Seconds with at least one waiting task, since the start of the machine."""
    throttled_s: float | None = None
    """Seconds for which a CPU quota stopped this process's groups."""
    busy_s: float | None = None
    """Core seconds of all processes on the cores of this process."""
    ours_s: float = 0.0
    """Core seconds of the trial's tree."""
    storage_read_bytes: int = 0
    """Bytes read from storage by the tree."""


def read_counters(pids: Iterable[int], at_s: float, proc: Path = PROC) -> Counters:
    """All counters now.

    Args:
        pids: The processes of the trial, and the supervisor.
        at_s: Time of the reading.
        proc: The kernel's /proc.
    """
    tree = tuple(pids)
    return Counters(
        at_s=at_s,
        cpu_pressure_s=pressure_s("cpu", proc),
        io_pressure_s=pressure_s("io", proc),
        memory_pressure_s=pressure_s("memory", proc),
        throttled_s=throttled_s(),
        busy_s=busy_s(_affinity(), proc),
        ours_s=sum(_process_s(proc / str(pid)) for pid in tree),
        storage_read_bytes=sum(_storage_read_bytes(proc / str(pid)) for pid in tree),
    )


def pressure_s(resource: str, proc: Path = PROC) -> float | None:
    """Seconds with at least one task waiting for `cpu`, `io` or `memory`; None without a counter."""
    try:
        lines = (proc / "pressure" / resource).read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def throttled_s(folders: Iterable[Path] | None = None) -> float | None:
    """Seconds for which a CPU quota stopped this process's group or a group above; None without a counter."""
    found = []
    for folder in cgroup_folders("cpu") if folders is None else folders:
        try:
            lines = (folder / "cpu.stat").read_text().splitlines()
        except OSError:
            continue
        values = dict(line.split()[:2] for line in lines if len(line.split()) == 2)
        if "throttled_usec" in values:
            found.append(int(values["throttled_usec"]) / 1e6)
        elif "throttled_time" in values:
            found.append(int(values["throttled_time"]) / 1e9)  # Version 1 counts nanoseconds.
    return max(found, default=None)


def busy_s(cpus: frozenset[int], proc: Path = PROC) -> float | None:
    """Busy core seconds of these cores; None without a counter."""
    lines = _cpu_lines(proc)
    busy = [
        sum(int(values[i]) for i in _BUSY_FIELDS if i < len(values))
        for name, *values in lines
        if name[3:].isdigit() and int(name[3:]) in cpus
    ]
    return sum(busy) / TICKS_PER_S if busy else None


def num_running(proc: Path = PROC) -> tuple[int, int] | None:
    """(tasks running or waiting for a core, cores of the machine); None without figures."""
    try:
        lines = (proc / "stat").read_text().splitlines()
    except OSError:
        return None
    num_cpus = sum(line[:3] == "cpu" and line[3:4].isdigit() for line in lines)
    running = next((int(line.split()[1]) for line in lines if line.startswith("procs_running ")), None)
    return (running, num_cpus) if running is not None and num_cpus else None


def page_cache_bytes(proc: Path = PROC) -> int | None:
    """Bytes of files in memory now; None without a figure."""
    return meminfo_bytes("Cached", proc)


def _affinity() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0))


def _cpu_lines(proc: Path) -> list[list[str]]:
    try:
        lines = (proc / "stat").read_text().splitlines()
    except OSError:
        return []
    return [line.split() for line in lines if line.startswith("cpu")]


def _process_s(process: Path) -> float:
    """Core seconds of a process and of its buried children."""
    try:
        fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS_PER_S
    except (OSError, ValueError):
        return 0.0


def _storage_read_bytes(process: Path) -> int:
    try:
        lines = (process / "io").read_bytes().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(b"read_bytes:")), 0)
