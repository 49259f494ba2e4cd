"""The machine as plain data: usable cores, memory, shared memory, devices. Standard library only."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
SHARED_MEMORY = Path("/dev/shm")
PROC = Path("/proc")
UNLIMITED_BYTES = 1 << 60
"""Limits from this size on mean no limit: cgroup version 1 writes a very large number."""
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""The kernel's names for instructions for bf16: two of x86, and one of Arm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceInfo:
    """One training device. The CPU counts as a device, and its memory is the host's."""

    kind: str
    """`cpu` or `cuda`."""
    name: str
    total_bytes: int
    free_bytes: int
    """Unused memory at the time of reading; on a CPU the kernel's available memory."""
    uuid: str = ""
    capability: tuple[int, int] | None = None
    """CUDA compute capability."""
    driver: str = ""
    num_other_processes: int = 0
    """Number of processes of others on this device."""

    @property
    def is_cpu(self) -> bool:
        """True for the CPU."""
        return self.kind == "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFingerprint:
    """Properties that must be equal for two measurements to be comparable."""

    cpu: str
    usable_cpus: float
    """Cores by affinity and cgroup quota; a quota may be a fraction."""
    memory_bytes: int
    system: str
    device: str
    num_devices: int = 1
    driver: str = ""
    torch: str = ""
    python: str = ""

    def differences(self, other: HostFingerprint) -> tuple[str, ...]:
        """One text per difference, empty when comparable; memory may differ by 5 %, since kernels reserve some."""
        lines = []
        for name in ("cpu", "usable_cpus", "system", "device", "num_devices", "driver", "torch"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there and here and there:
                lines.append(f"{name}: {here}, was {there}")
        if abs(self.memory_bytes - other.memory_bytes) > 0.05 * max(self.memory_bytes, other.memory_bytes):
            lines.append(f"memory_bytes: {self.memory_bytes}, was {other.memory_bytes}")
        return tuple(lines)


def fingerprint(device: DeviceInfo, *, num_devices: int, torch_version: str) -> HostFingerprint:
    """The fingerprint of this machine with the given device."""
    return HostFingerprint(
        cpu=cpu_model(),
        usable_cpus=usable_cpus(),
        memory_bytes=total_memory_bytes(),
        system=platform.system().lower(),
        device=device.name,
        num_devices=num_devices,
        driver=device.driver,
        torch=torch_version,
        python=".".join(map(str, sys.version_info[:2])),
    )


def usable_cpus() -> float:
    """Cores available to this process: the affinity mask, limited by the CPU quota of every enclosing cgroup.

    `os.cpu_count()` ignores both limits; in containers its number is often many times too high.
    """
    cpus = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    for quota in _cpu_quotas():
        cpus = min(cpus, quota)
    return cpus


def _cpu_quotas() -> list[float]:
    quotas = []
    for folder in cgroup_folders("cpu"):
        try:
            if (folder / "cpu.max").is_file():
                limit, period = (folder / "cpu.max").read_text().split()[:2]
            else:
                limit = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
            if limit not in ("max", "-1"):
                quotas.append(int(limit) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return [quota for quota in quotas if quota > 0]


def cgroup_folders(controller: str) -> list[Path]:
    """Folders of this process's cgroup and its ancestors, for version 2 and for a version 1 controller."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        number, names, place = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            top = CGROUP_ROOT
        elif controller in names.split(","):
            top = CGROUP_ROOT / controller
        else:
            continue
        folder = top / place.lstrip("/")
        folders.extend([folder, *(parent for parent in folder.parents if parent == top or top in parent.parents)])
    return folders


def memory_limit_bytes() -> int | None:
    """The smallest memory limit of this process's cgroups; None without a limit."""
    limits = [_figure(folder, "memory.max", "memory.limit_in_bytes") for folder in cgroup_folders("memory")]
    return min((limit for limit in limits if limit is not None and limit < UNLIMITED_BYTES), default=None)


def cgroup_room_bytes(folders: Iterable[Path] | None = None) -> int | None:
    """Memory left under the limits of cgroups, counting droppable page cache as free; None without a limit.

    Args:
        folders: Folders of the cgroups; None = the cgroups of this process.
    """
    rooms = []
    for folder in cgroup_folders("memory") if folders is None else folders:
        limit = _figure(folder, "memory.max", "memory.limit_in_bytes")
        used = _figure(folder, "memory.current", "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < UNLIMITED_BYTES:
            rooms.append(max(0, limit - max(0, used - _file_bytes(folder))))
    return min(rooms, default=None)


def _figure(folder: Path, *names: str) -> int | None:
    """The number in the first existing file; None when no file exists, or the file holds a word."""
    for name in names:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _file_bytes(folder: Path) -> int:
    """Page cache of a cgroup and its descendants; version 1 uses a longer name."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split()[:2] for line in lines if len(line.split()) == 2)
    names = ("active_file", "inactive_file")
    return sum(int(values.get(f"total_{name}", values.get(name, 0))) for name in names)


def total_memory_bytes() -> int:
    """Memory of the host, or of the container if smaller."""
    total = int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))
    limit = memory_limit_bytes()
    return total if limit is None else min(total, limit)


def available_memory_bytes() -> int:
    """Memory available to new processes without swapping; half of the total on systems that do not tell.

    In a container, at most the memory left under its limit.
    """
    room = cgroup_room_bytes()
    available = meminfo_bytes("MemAvailable")
    available = total_memory_bytes() // 2 if available is None else min(available, total_memory_bytes())
    return available if room is None else min(available, room)


def meminfo_bytes(name: str, proc: Path | None = None) -> int | None:
    """A figure of `/proc/meminfo` in bytes, such as `MemAvailable`; None without the figure."""
    try:
        lines = ((proc or PROC) / "meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def shared_memory_free_bytes() -> int | None:
    """Free space in /dev/shm, which holds the batches of loader workers; None without a /dev/shm."""
    try:
        return shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return None


def cpu_model() -> str:
    """Name of the processor, from the kernel."""
    return _cpuinfo(("model name",)) or platform.processor() or platform.machine()


def has_bf16_instructions(proc: Path | None = None) -> bool:
    """Whether the processor has instructions for bf16; False when the kernel does not tell."""
    return not BF16_FLAGS.isdisjoint(_cpuinfo(("flags", "Features"), proc).split())


def _cpuinfo(fields: tuple[str, ...], proc: Path | None = None) -> str:
    """The value of the first line of `/proc/cpuinfo` that begins with one of the fields; empty without such a line."""
    try:
        lines = ((proc or PROC) / "cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(fields)), "")


def cpu_device() -> DeviceInfo:
    """The CPU as a device."""
    return DeviceInfo(
        kind="cpu", name=cpu_model(), total_bytes=total_memory_bytes(), free_bytes=available_memory_bytes()
    )


def boot_id() -> str:
    """An identifier that changes with every boot; empty if unknown. A process id is unique only within one boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_start_ticks(pid: int) -> int | None:
    """The kernel's start time of a process, None without such a process; pid and start time together are unique."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])
