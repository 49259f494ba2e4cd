"""Memory that processes hold on the host, read from /proc by those that watch them and by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.host import PROC, SHARED_MEMORY

_HELD_KEYS = (b"Pss:", b"Pss_Anon:", b"Pss_Shmem:", b"Private_Dirty:", b"Anonymous:")
_RESIDENT_KEYS = (b"VmRSS:", b"RssAnon:", b"RssShmem:")


def held_memory_bytes(
    pids: Iterable[int], proc: Path = PROC, *, servers: Iterable[int] = (), rollups: Iterable[bytes] = ()
) -> int:
    """Memory that these processes hold: anonymous pages and shared memory, each counted once, mapped files not.

    The sum of resident sizes counts pages that forked workers share again and again (measured: 3.8 times too much).
    Batches on their way from a worker to the training process are mapped by nobody, but their files are open.
    Where the kernel does not say what a process has of shared pages, all of them count, so that a cap holds there too.

    Args:
        pids: The processes.
        proc: Where the kernel shows them.
        servers: Processes that they were forked from: of their pages those count that they share, and no others. Where
            there are several, what these share among themselves alone counts as well.
        rollups: Contents of the `smaps_rollup` of more such processes, which have no number here.
    """
    tree = tuple(pids)
    held = [_shares(proc / str(pid)) for pid in tree]
    anonymous, mapped = sum(share for share, _ in held), sum(share for _, share in held)
    for server in (*(_rollup(proc / str(pid)) for pid in servers), *(_sizes(text, _HELD_KEYS) for text in rollups)):
        anonymous += max(0, server.get(b"Pss_Anon:", 0) - server.get(b"Private_Dirty:", 0))
    return anonymous + max(mapped, open_shared_bytes(tree, proc))


def open_shared_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """Bytes of the files in /dev/shm that any of these processes has open, each once.

    A trial may have shared memory of its own there, so the path tells, and not the file system of this process.
    """
    opened: dict[tuple[int, int], int] = {}
    for pid in pids:
        opened.update(_open_files(proc / str(pid), f"{SHARED_MEMORY}/"))
    return sum(opened.values())


def resident_bytes(process: Path) -> tuple[int, int]:
    """Anonymous and shared pages of a process, each in full; all of its pages and 0 where they are not told apart."""
    values = _values(process / "status", _RESIDENT_KEYS)
    if b"RssAnon:" not in values:
        return values.get(b"VmRSS:", 0), 0
    return values[b"RssAnon:"], values.get(b"RssShmem:", 0)


def private_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """Memory that goes when these processes go: what they share with others, and are only forked with, does not."""
    return sum(_rollup(proc / str(pid)).get(b"Private_Dirty:", 0) for pid in pids)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResidentMemory:
    """Memory of one process, by the kernel's counters alone: cheap, with what it shares in full."""

    held_bytes: int
    """Anonymous and shared, as of now."""
    file_bytes: int
    """Of mapped files, as of now."""
    peak_bytes: int
    """Most of both together, since the process began or its peak was forgotten."""


def resident_memory(process: Path = PROC / "self") -> ResidentMemory | None:
    """The counters of this process; None where the kernel keeps none."""
    values = _values(process / "status", (b"Rss", b"VmHWM:"))
    try:
        held_bytes = values[b"RssAnon:"] + values[b"RssShmem:"]
        return ResidentMemory(held_bytes=held_bytes, file_bytes=values[b"RssFile:"], peak_bytes=values[b"VmHWM:"])
    except KeyError:
        return None


def forget_peak(process: Path = PROC / "self") -> None:
    """Lets this process's peak begin anew at what is resident now, where the kernel permits it."""
    with suppress(OSError):
        (process / "clear_refs").write_bytes(b"5")


def _shares(process: Path) -> tuple[int, int]:
    """A process's shares of the anonymous and of the shared pages that it has mapped, or the most that they can be.

    Kernels before 5.4 tell its share of all pages alone; some sandboxes, and who may not be asked, tell none.
    """
    rollup = _rollup(process)
    if b"Pss_Anon:" in rollup:
        return rollup[b"Pss_Anon:"], rollup.get(b"Pss_Shmem:", 0)
    anonymous, shared = resident_bytes(process)
    share = rollup.get(b"Pss:", anonymous + shared)
    return min(share, rollup.get(b"Anonymous:", anonymous)), min(share, shared)


def _rollup(process: Path) -> dict[bytes, int]:
    return _values(process / "smaps_rollup", _HELD_KEYS)


def _values(path: Path, keys: tuple[bytes, ...]) -> dict[bytes, int]:
    """Bytes by name, of the lines that begin so; empty where the file cannot be read."""
    try:
        return _sizes(path.read_bytes(), keys)  # Bytes: the name of a process, which is in there, is any.
    except OSError:
        return {}


def _sizes(text: bytes, keys: tuple[bytes, ...]) -> dict[bytes, int]:
    """Bytes by name, of the lines that begin so."""
    return {line.split()[0]: int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(keys)}


def _open_files(process: Path, folder: str) -> dict[tuple[int, int], int]:
    """Bytes by device and inode of the files below `folder` that a process has open, removed ones too."""
    files = {}
    try:
        descriptors = list(os.scandir(process / "fd"))
    except OSError:
        return {}
    for descriptor in descriptors:
        try:
            if os.readlink(descriptor.path).startswith(folder):  # noqa: PTH115  called for every open file
                status = descriptor.stat()
                files[status.st_dev, status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return files
