"""The copy-on-write layer over the user's folders: overlay mounts in a mount namespace of the trial's own.

Standard library only: the warden loads this file. The user's folder is the lowest layer, what the probe made
(downloads, caches) lies over it, and what this trial writes goes on top. Nothing of it is visible outside.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_RELATIME = 1 << 21
MNT_DETACH = 2
ST_RELATIME = 4096
KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048
"""nosuid, nodev, noexec, noatime, nodiratime: a namespace may not take them off. The same numbers in mount and
statvfs, which relatime has not."""
PERMITTED_LIMIT_S = 30.0
RENAMES_FOLDERS = ",redirect_dir=on"
"""Lets the user's folders be renamed; it needs a right that only root has. Without it that is a rename across disks."""
ATTEMPT = """
import sys
sys.path.append(sys.argv[1])
import json, os, shutil
from autotune.runner import layers
layers.enter(json.loads(sys.stdin.read()))
os.chdir(sys.argv[2] + "/user")
open("kept", "w").write("trial")
shutil.rmtree("sub")
os.mkdir("sub")
assert os.listdir("sub") == []
"""
"""What scripts do: some temporary spaces let a layer be mounted and cannot keep what it must note in them."""
PACKAGE_PARENT = str(Path(__file__).resolve().parent.parent.parent)


def enter(mounts: Sequence[dict[str, Any]], replaced: Sequence[str] = ()) -> None:
    """Moves this process into a mount namespace of its own and mounts every layer there.

    Args:
        mounts: Mappings with `folder` (the user's), `lower` (layers of the study between, nearest first), `upper` and
            `work` (the trial's, existing, on one local file system outside of `folder`); outer folders come first.
        replaced: Folders over which an ancestor of this process mounted layers that must not be seen below these.

    Raises:
        OSError: The system does not permit it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _unshare(libc)
    _mount(libc, "none", "/", None, MS_REC | MS_PRIVATE, None)
    for folder in reversed(replaced):
        if libc.umount2(os.fsencode(folder), MNT_DETACH) != 0:
            raise OSError(ctypes.get_errno(), f"umount {folder}: {os.strerror(ctypes.get_errno())}")
    folders = [str(mount["folder"]) for mount in mounts]
    inside = {point for folder in folders for point in mounts_below(folder)}
    # Opened beforehand: what lies below a mount is out of sight of its path afterwards.
    below = {path: _open(path) for path in {*folders, *inside}}
    for mount, folder in zip(mounts, folders, strict=True):
        try:
            _overlay(libc, mount, below[folder])
        except OSError:
            if folder not in inside:
                raise
            _bind_read_only(libc, below[folder], folder)
    for point in sorted(inside.difference(folders)):
        if below[point] >= 0:
            _bind_read_only(libc, below[point], point)
    for descriptor in below.values():
        if descriptor >= 0:
            os.close(descriptor)


def _unshare(libc: Any) -> None:
    """Makes a mount namespace: outright where we may, otherwise in a user namespace, which knows this user alone.

    In the latter, root has no rights over the files of others.
    """
    if libc.unshare(CLONE_NEWNS) == 0:
        return
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _open(path: str) -> int:
    """A descriptor of a place, readable or not; -1 where even that is refused, as in another user's mounts."""
    try:
        return os.open(path, os.O_PATH)
    except OSError:
        return -1


def _overlay(libc: Any, mount: dict[str, Any], folder: int) -> None:
    """Mounts one layer. All places are given as descriptors: in overlay's options some characters mean something."""
    opened = [_opened(path) for path in (*mount["lower"], mount["upper"], mount["work"])]
    if folder < 0:
        raise OSError(errno.EACCES, f"mount {mount['folder']}: {os.strerror(errno.EACCES)}")
    places = [f"/proc/self/fd/{descriptor}" for descriptor in opened]
    lower = ":".join([*places[:-2], f"/proc/self/fd/{folder}"])
    options = f"lowerdir={lower},upperdir={places[-2]},workdir={places[-1]}"
    try:
        try:
            _mount(libc, "overlay", str(mount["folder"]), "overlay", MS_NOSUID | MS_NODEV, options + RENAMES_FOLDERS)
        except OSError:
            _mount(libc, "overlay", str(mount["folder"]), "overlay", MS_NOSUID | MS_NODEV, options + ",userxattr")
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _opened(path: object) -> int:
    return os.open(str(path), os.O_PATH | os.O_DIRECTORY)


def _bind_read_only(libc: Any, descriptor: int, point: str) -> None:
    """Shows what is mounted inside a covered folder, which an overlay does not, and lets nobody write to it."""
    if descriptor < 0 or not os.path.lexists(point):
        return
    _mount(libc, f"/proc/self/fd/{descriptor}", point, None, MS_BIND | MS_REC, None)
    found = os.statvfs(point).f_flag
    flags = found & KEPT_FLAGS | (MS_RELATIME if found & ST_RELATIME else 0)
    _mount(libc, "none", point, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, None)


def _mount(libc: Any, source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    if libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")


def mounts_below(folder: str) -> list[str]:
    """Mount points strictly inside `folder`, in order of their paths, so that outer ones come first."""
    points = set()
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    for line in lines:
        # Space, tab, newline and backslash are written as three octal digits there.
        point = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), line.split()[4])
        points.add(os.fsdecode(point))
    return sorted(point for point in points if point.startswith(folder.rstrip("/") + "/"))


def is_permitted(scratch: Path, folders: Sequence[Path] = ()) -> bool:
    """Whether this system lets us mount layers over these folders: tried for real in a child.

    Args:
        scratch: A folder of ours, for the layers of the attempt; nothing is written over the user's.
        folders: The user's, outer ones first.
    """
    if not sys.platform.startswith("linux"):
        return False
    remove_tree(scratch)  # A tuner that was killed here leaves it.
    (scratch / "user" / "sub").mkdir(parents=True)
    (scratch / "user" / "kept").write_text("user")
    (scratch / "user" / "sub" / "old").write_text("old")
    mounts = [_attempt(scratch, scratch / "user", 0)]
    mounts += [_attempt(scratch, folder, number) for number, folder in enumerate(folders, 1)]
    command = [sys.executable, "-I", "-S", "-c", ATTEMPT, PACKAGE_PARENT, str(scratch)]
    try:
        ended = subprocess.run(
            command, input=json.dumps(mounts).encode(), capture_output=True, timeout=PERMITTED_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    is_kept = (scratch / "user" / "kept").read_text() == "user" and (scratch / "upper-0" / "kept").is_file()
    make_removable(scratch)
    return ended.returncode == 0 and is_kept


def _attempt(scratch: Path, folder: Path, number: int) -> dict[str, Any]:
    upper, work = scratch / f"upper-{number}", scratch / f"work-{number}"
    upper.mkdir()
    work.mkdir()
    return {"folder": str(folder), "lower": [], "upper": str(upper), "work": str(work)}


def make_removable(folder: Path) -> None:
    """Gives back the right to remove what overlay (or a script) left without permissions."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink():
                try:
                    path.chmod(0o700)
                except OSError:
                    continue


def remove_tree(folder: Path) -> None:
    """Removes a folder of ours, or whatever a script put in its place."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink(missing_ok=True)
        return
    make_removable(folder)
    shutil.rmtree(folder, ignore_errors=True)
