"""Devices, processes, shared memory and sockets in the view of a sandboxed process. Standard library only."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from autotune.sandbox import namespaces
from autotune.sandbox.layer_folders import UPPER, WORK, layer_name
from autotune.sandbox.mount_tree import MountTree
from autotune.sandbox.namespaces import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_REC

MAX_SOCKETS = 300
PRIVATE_PROC = ("sys", "sysrq-trigger", "irq", "bus")
"""Parts of /proc with switches of the machine for root."""
STARTERS = re.compile(
    r"/(systemd|dbus|docker|containerd|podman|crio|snapd|cron|lxd|libvirt)[^/]*(/|$)|/atd?(/|$)|/bus$"
)
"""Paths of sockets of services that start programs for any client. Trials get no connection there."""
DISKS = ("/dev", "/dev/mapper", "/dev/block")
"""Folders with block devices; further folders have links."""
SHARED_MEMORY = "/dev/shm"
LEAST_MEMORY_BYTES = 1 << 20


def comes_along(point: str) -> bool:
    """Whether a mount comes along with the mount of /dev, /proc or /sys."""
    return point.startswith(("/dev/", "/proc/", "/sys/"))


def show_devices(tree: MountTree) -> None:
    """Shows /dev: devices work, except disks within reach of this user's writes; new files are refused."""
    namespaces.mount("/dev", tree.at("/dev"), None, MS_BIND | MS_REC)
    if "/dev" in tree.mounts:
        namespaces.make_read_only(tree.at("/dev"))
    for disk in _writable_disks():
        tree.bind(disk, is_writable=True)
        namespaces.close_device(tree.at(disk))


def _writable_disks() -> list[str]:
    """Paths of all block devices that this user may write to; writes there would reach files below every layer."""
    found = []
    for folder in DISKS:
        with suppress(OSError), os.scandir(folder) as entries:
            found += [entry.path for entry in entries if stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode)]
    return [path for path in found if os.access(path, os.W_OK)]


def show_own_memory(tree: MountTree, upper: str) -> None:
    """Mounts shared memory of the process's own, with the size of the system's free shared memory.

    Files in the system's shared memory are seen through a layer.

    Args:
        tree: Has /dev already.
        upper: Folder of the process's layer.
    """
    if not Path(SHARED_MEMORY).is_dir():
        return
    status = os.statvfs(SHARED_MEMORY)
    options = f"mode=1777,size={max(status.f_bavail * status.f_frsize, LEAST_MEMORY_BYTES)}"
    own = Path(upper, layer_name(SHARED_MEMORY))
    if not any(os.scandir(SHARED_MEMORY)):
        namespaces.mount("tmpfs", tree.at(SHARED_MEMORY), "tmpfs", MS_NOSUID | MS_NODEV, options)
        return
    own.mkdir(parents=True, exist_ok=True)
    namespaces.mount("tmpfs", str(own), "tmpfs", MS_NOSUID | MS_NODEV, options)
    for name in (UPPER, WORK):
        (own / name).mkdir()
    (own / UPPER).chmod(0o1777)
    namespaces.mount_overlay(tree.at(SHARED_MEMORY), [SHARED_MEMORY], str(own / UPPER), str(own / WORK))
    namespaces.unmount(str(own))


def show_processes(tree: MountTree, *, has_pids: bool, is_root: bool) -> None:
    """Shows /proc.

    Args:
        tree: The tree of mounts.
        has_pids: Whether to show the process's own process namespace.
        is_root: Whether to protect the machine's switches.
    """
    if not has_pids:
        namespaces.mount("/proc", tree.at("/proc"), None, MS_BIND | MS_REC)
    else:
        namespaces.mount("proc", tree.at("/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        for point in sorted(point for point in tree.mounts if point.startswith("/proc/")):
            with suppress(OSError):
                tree.bind(point, is_writable=True)
    for name in PRIVATE_PROC if is_root else ():
        with suppress(OSError):
            place = tree.at(f"/proc/{name}")
            namespaces.mount(place, place, None, MS_BIND)
            namespaces.make_read_only(place)


def show_sockets(tree: MountTree) -> None:
    """Shows the sockets of running programs, except `STARTERS`. No layer leads to a socket."""
    for path in _sockets()[:MAX_SOCKETS]:
        if STARTERS.search(path) is None and not comes_along(path):
            with suppress(OSError):
                tree.bind(path, is_writable=True)


def _sockets() -> list[str]:
    """Real paths of all sockets in the file system."""
    try:
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return []
    paths = {words[7] for line in lines if len(words := line.split(None, 7)) == 8 and words[7].startswith(b"/")}
    found = []
    for path in sorted(map(os.fsdecode, paths)):
        with suppress(OSError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                found.append(os.path.realpath(path))
    return found
