"""System calls for a process's own view of mounts, processes and rights. Standard library only; Linux.

Every function raises `OSError` with the kernel's error where the system does not permit the call.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19
MS_RELATIME = 1 << 21
MNT_DETACH = 2
ST_RELATIME = 4096
KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048
"""nosuid, nodev, noexec, noatime, nodiratime: a namespace may not remove these flags. The numbers are equal in mount
and statvfs, unlike relatime's."""
PR_CAPBSET_DROP = 24
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522
CAP_SETPCAP = 8
CAP_NET_ADMIN = 12
CAP_SYS_CHROOT = 18
CAP_SYS_ADMIN = 21
OUTSIDE_RIGHTS = (
    2,  # DAC_READ_SEARCH: opens files by handles, past every mount.
    CAP_NET_ADMIN,
    16,  # SYS_MODULE
    17,  # SYS_RAWIO
    CAP_SYS_CHROOT,
    20,  # SYS_PACCT
    CAP_SYS_ADMIN,  # Mounts, and the mount namespaces of others.
    22,  # SYS_BOOT
    25,  # SYS_TIME
    27,  # MKNOD: a device node of the disk reaches all files on the disk.
    32,  # MAC_OVERRIDE
    33,  # MAC_ADMIN
    34,  # SYSLOG
    39,  # BPF
    40,  # CHECKPOINT_RESTORE
)
"""Rights of root with a way out of the layers. A training script needs none."""
LATER_RIGHTS = (CAP_SETPCAP, CAP_NET_ADMIN, CAP_SYS_CHROOT, CAP_SYS_ADMIN)
"""Rights that a prelude holds back for the layers and the loopback of later trials."""
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
"""Numbers of the call; libc has no function."""
RENAMES_FOLDERS = ",redirect_dir=on"
"""Permits renames of the user's folders; needs a right of root. Without this option such a rename is a rename across
disks."""

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _called(what: str, status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Moves this process into new namespaces."""
    assert _libc is not None
    _called("unshare", _libc.unshare(flags))


def join_mounts(descriptor: int) -> None:
    """Moves this process into the mount namespace behind a descriptor; its root and working folder become `/`."""
    assert _libc is not None
    _called("setns", _libc.setns(descriptor, CLONE_NEWNS))


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mounts a file system, or changes a mount: the call of the same name."""
    assert _libc is not None
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    status = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _called(f"mount {target}", status)


def mount_overlay(target: str, lowers: Sequence[str], upper: str, work: str) -> None:
    """Mounts one layer.

    Overlay's options give a meaning to some characters in paths, so all folders are named by descriptors.

    Args:
        target: Mount point.
        lowers: Folders to read from, nearest first.
        upper: Folder to write to.
        work: Folder of the kernel, on the file system of `upper`.

    Raises:
        OSError: The system does not permit the mount.
    """
    opened: list[int] = []
    try:
        opened.extend(os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (*lowers, upper, work))
        places = [f"/proc/self/fd/{descriptor}" for descriptor in opened]
        options = f"lowerdir={':'.join(places[:-2])},upperdir={places[-2]},workdir={places[-1]},index=off"
        try:
            mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options + RENAMES_FOLDERS)
        except OSError:
            mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options + ",userxattr")
    finally:
        for descriptor in opened:
            os.close(descriptor)


def unmount(target: str) -> None:
    """Hides a mount and all mounts below."""
    assert _libc is not None
    _called(f"umount {target}", _libc.umount2(os.fsencode(target), MNT_DETACH))


def make_read_only(point: str) -> None:
    """Makes a mount read-only; the other flags stay."""
    found = os.statvfs(point).f_flag
    flags = found & KEPT_FLAGS | (MS_RELATIME if found & ST_RELATIME else 0)
    mount("none", point, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def close_device(point: str) -> None:
    """Makes the device at a mount point of its own refuse every opening."""
    mount("none", point, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def change_root(folder: str) -> None:
    """Makes a mount the root of this mount namespace, and takes the old root out of sight."""
    assert _libc is not None
    os.chdir(folder)
    number = PIVOT_ROOT.get(os.uname().machine)
    if number is not None and _libc.syscall(ctypes.c_long(number), b".", b".") == 0:
        unmount(".")  # The old root, now over the new root.
    else:  # The first file system of a machine without a disk cannot be pivoted away.
        mount(folder, "/", None, 8192)
        os.chroot(".")
    os.chdir("/")


def own_users() -> None:
    """Gives this process a user namespace, with all rights over namespaces and no new rights over files.

    The namespace knows this user and this group alone.
    """
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _capabilities() -> tuple[int, int, int]:
    """Effective, permitted and inheritable rights of this thread, as masks."""
    assert _libc is not None
    header, data = _CapHeader(CAPABILITY_VERSION_3, 0), (_CapData * 2)()
    _called("capget", _libc.capget(ctypes.byref(header), data))
    low, high = data
    return (
        low.effective | high.effective << 32,
        low.permitted | high.permitted << 32,
        low.inheritable | high.inheritable << 32,
    )


def _set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    assert _libc is not None
    header, data = _CapHeader(CAPABILITY_VERSION_3, 0), (_CapData * 2)()
    for half, shift in zip(data, (0, 32), strict=True):
        half.effective, half.permitted = effective >> shift & 0xFFFFFFFF, permitted >> shift & 0xFFFFFFFF
        half.inheritable = inheritable >> shift & 0xFFFFFFFF
    _called("capset", _libc.capset(ctypes.byref(header), data))


def can_mount() -> bool:
    """Whether this process has the right to mount already."""
    return _libc is not None and bool(_capabilities()[0] >> CAP_SYS_ADMIN & 1)


def raise_rights() -> None:
    """Puts all rights that this process holds back in force."""
    _, permitted, inheritable = _capabilities()
    _set_capabilities(permitted, permitted, inheritable)


def keep_rights_in_next_program() -> None:
    """Hands this process's rights on to the next executed program, for root and for an ordinary user."""
    assert _libc is not None
    _, permitted, _ = _capabilities()
    _set_capabilities(permitted, permitted, permitted)
    for number in _numbers(permitted):
        _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0)


def keep_rights_in_this_program() -> None:
    """Hands no rights on to executed programs, unless the user is root."""
    assert _libc is not None
    effective, permitted, _ = _capabilities()
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _set_capabilities(effective, permitted, 0)


def drop_rights(*, is_root: bool, held_back: Iterable[int] = ()) -> None:
    """Gives up the rights with a way out of the layers, for this process and for executed programs.

    Args:
        is_root: Whether the user is root outside of every user namespace, and keeps rights over files.
        held_back: Rights for a later `raise_rights`; executed programs have none of these.
    """
    assert _libc is not None
    effective, permitted, _ = _capabilities()
    dropped = OUTSIDE_RIGHTS if is_root else tuple(_numbers(permitted))
    for number in dropped:
        _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    mask, later = sum(1 << number for number in dropped), sum(1 << number for number in held_back)
    _set_capabilities(effective & ~mask & ~later, permitted & (~mask | later), 0)


def _numbers(mask: int) -> list[int]:
    return [number for number in range(mask.bit_length()) if mask >> number & 1]
