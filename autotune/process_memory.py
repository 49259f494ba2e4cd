"""Host memory of processes, read from /proc by the processes themselves or by observers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.host import PROC, SHARED_MEMORY

MOST_READINGS = 3
"""Most readings of a tree in which processes end; the lowest counts."""
_HELD_KEYS = (b"Pss:", b"Pss_Anon:", b"Pss_Shmem:", b"Private_Dirty:", b"Anonymous:")
_RESIDENT_KEYS = (b"VmRSS:", b"RssAnon:", b"RssShmem:")


def held_memory_bytes(
    pids: Iterable[int], proc: Path = PROC, *, servers: Iterable[int] = (), rollups: Iterable[bytes] = ()
) -> int:
    """Memory held by these processes: anonymous pages and shared memory, each counted once, without mapped files.

    The sum of resident sizes counts pages shared by forked workers again and again (measured: 3.8 times too much). A
    batch on its way from a worker to the training process is not mapped, but its file is open. If the kernel does not
    tell a process's share of shared pages, all shared pages count: a cap holds on every kernel.

    The end of a process raises the shares of the others. A page then counts twice, in a worker's share before the end
    and in the parent's share after the end (measured: 1.7 times too much). Parents are therefore read before children,
    and the whole tree again after the end of a process.

    Args:
        pids: The processes.
        proc: The kernel's folder of processes.
        servers: Processes from which `pids` were forked: only pages shared with other processes count. With several
            servers, pages shared only among the servers count as well.
        rollups: Contents of `smaps_rollup` of further servers without a process id here.
    """
    tree, above, texts = tuple(sorted(pids)), tuple(servers), tuple(rollups)
    readings: list[int] = []
    while len(readings) < MOST_READINGS:
        before = _present((*above, *tree), proc)
        readings.append(_held_now(tree, above, texts, proc))
        if before == _present(before, proc):
            break
    return min(readings)


def _held_now(tree: Sequence[int], servers: Sequence[int], rollups: Sequence[bytes], proc: Path) -> int:
    """One reading: servers, then the tree by process id, since a parent usually has a smaller id than a child."""
    above = [*(_rollup(proc / str(pid)) for pid in servers), *(_sizes(text, _HELD_KEYS) for text in rollups)]
    held = [_shares(proc / str(pid)) for pid in tree]
    anonymous, mapped = sum(share for share, _ in held), sum(share for _, share in held)
    for server in above:
        anonymous += max(0, server.get(b"Pss_Anon:", 0) - server.get(b"Private_Dirty:", 0))
    return anonymous + max(mapped, open_shared_bytes(tree, proc))


def _present(pids: Iterable[int], proc: Path) -> set[int]:
    """Processes with memory; an ended process has none."""
    return {pid for pid in pids if any(resident_bytes(proc / str(pid)))}


def open_shared_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """Bytes of the files in /dev/shm opened by any of these processes, each counted once.

    A trial may have a private /dev/shm, so the path of a file decides, not the file system of this process.
    """
    opened: dict[tuple[int, int], int] = {}
    for pid in pids:
        opened.update(_open_files(proc / str(pid), f"{SHARED_MEMORY}/"))
    return sum(opened.values())


def resident_bytes(process: Path) -> tuple[int, int]:
    """Anonymous and shared pages of a process, each in full; all pages and 0 if the kernel does not distinguish."""
    values = _values(process / "status", _RESIDENT_KEYS)
    if b"RssAnon:" not in values:
        return values.get(b"VmRSS:", 0), 0
    return values[b"RssAnon:"], values.get(b"RssShmem:", 0)


def private_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """Memory freed at the end of these processes, without pages shared with further processes."""
    return sum(_rollup(proc / str(pid)).get(b"Private_Dirty:", 0) for pid in pids)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResidentMemory:
    """Memory of one process by the kernel's counters alone: cheap, with shared pages counted in full."""

    held_bytes: int
    """Present anonymous and shared memory."""
    file_bytes: int
    """Present memory of mapped files."""
    peak_bytes: int
    """Peak of held and file memory together, since the process began or the peak was reset."""


def resident_memory(process: Path = PROC / "self") -> ResidentMemory | None:
    """The counters of a process; None when the kernel keeps none."""
    values = _values(process / "status", (b"Rss", b"VmHWM:"))
    try:
        held_bytes = values[b"RssAnon:"] + values[b"RssShmem:"]
        return ResidentMemory(held_bytes=held_bytes, file_bytes=values[b"RssFile:"], peak_bytes=values[b"VmHWM:"])
    except KeyError:
        return None


def forget_peak(process: Path = PROC / "self") -> None:
    """Resets the peak of a process to its present memory, if the kernel permits."""
    with suppress(OSError):
        (process / "clear_refs").write_bytes(b"5")


def _shares(process: Path) -> tuple[int, int]:
    """A process's shares of its mapped anonymous and shared pages, or upper bounds of the shares.

    Kernels before 5.4 give only the share of all pages. Some sandboxes, and processes of other users, give none.
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
    """Bytes by name, from the lines that begin with a key; empty when the file cannot be read."""
    try:
        return _sizes(path.read_bytes(), keys)  # The file holds the process's name, which may be any bytes.
    except OSError:
        return {}


def _sizes(text: bytes, keys: tuple[bytes, ...]) -> dict[bytes, int]:
    """Bytes by name, from the lines that begin with a key."""
    return {line.split()[0]: int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(keys)}


def _open_files(process: Path, folder: str) -> dict[tuple[int, int], int]:
    """Bytes by device and inode of a process's open files below `folder`, including removed files."""
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
