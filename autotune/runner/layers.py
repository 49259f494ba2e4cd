"""The copy-on-write layer over the user's folders: overlay mounts in a user and mount namespace of the trial's own.

Standard library only: the warden loads this file by its path. The user's folder is the lowest layer, what the probe
made (downloads, caches) lies over it, and what this trial writes goes on top. Nothing of it is visible outside.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_NOSUID = 2
MS_NODEV = 4
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18


def enter(layers: list[dict[str, Any]]) -> None:
    """Moves this process into its own namespaces and mounts every layer.

    Args:
        layers: Mappings with `folder` (the user's), `lower` (layers of the study between, nearest first), `upper` and
            `work` (the trial's, existing, on one local file system outside of `folder`).

    Raises:
        OSError: The system does not permit it; nothing was mounted over the user's folder then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount(libc, b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    for layer in layers:
        _overlay(libc, layer)


def _overlay(libc: Any, layer: dict[str, Any]) -> None:
    folder = str(layer["folder"])
    inside = [(point, os.open(point, os.O_PATH | os.O_DIRECTORY)) for point in _mounts_below(folder)]
    lower = ":".join(_escape(path) for path in [*layer["lower"], folder])
    options = f"lowerdir={lower},upperdir={_escape(layer['upper'])},workdir={_escape(layer['work'])},userxattr"
    _mount(libc, b"overlay", os.fsencode(folder), b"overlay", MS_NOSUID | MS_NODEV, os.fsencode(options))
    for point, descriptor in inside:
        # An overlay does not show what is mounted inside its lower folder; put it back as it was.
        if Path(point).is_dir():
            _mount(libc, f"/proc/self/fd/{descriptor}".encode(), os.fsencode(point), None, MS_BIND | MS_REC, None)
        os.close(descriptor)


def _mount(libc: Any, source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None) -> None:
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), options) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {os.fsdecode(target)}: {os.strerror(number)}")


def _escape(path: object) -> str:
    r"""A path inside overlay's option string: `\`, `:` and `,` separate there."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _mounts_below(folder: str) -> list[str]:
    """Mount points of directories strictly inside `folder`, outermost first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point.startswith(folder.rstrip("/") + "/") and Path(point).is_dir():
            points.append(point)
    return [point for point in sorted(points) if not any(point.startswith(other + "/") for other in points)]


def is_permitted(scratch: Path) -> bool:
    """Whether this system lets us mount a layer: tried for real in a child, on folders below `scratch`."""
    if not sys.platform.startswith("linux"):
        return False
    for name in ("user", "upper", "work"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    (scratch / "user" / "kept").write_text("user")
    program = (
        "import sys, json, pathlib; sys.path.insert(0, sys.argv[1]); import layers; s = pathlib.Path(sys.argv[2]);"
        "layers.enter([dict(folder=str(s/'user'), lower=[], upper=str(s/'upper'), work=str(s/'work'))]);"
        "(s/'user'/'kept').write_text('trial')"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(Path(__file__).parent), str(scratch)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    kept = (scratch / "user" / "kept").read_text() == "user" and (scratch / "upper" / "kept").is_file()
    make_removable(scratch)
    return ended.returncode == 0 and kept


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
