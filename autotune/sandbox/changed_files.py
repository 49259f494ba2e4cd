"""The user's files changed by a trial in spite of the protection: folders compared before and after.

Of shared memory only earlier files count, because many programs make and remove files there.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from autotune.sandbox import shared_files

MAX_ENTRIES = 20_000
"""A scan of more would take longer than a short trial; further entries are not compared."""
MAX_NAMED = 50
ROOT = "/"
"""Entries right below count as well: no redirection covers the root folder itself."""
OF_SERVERS = ("PostgreSQL.",)
"""Beginnings of the names of files in shared memory that running servers change at any time."""

Status = tuple[int, int, int]
"""Size, inode, and the time of the last change of content or metadata; of a folder `FOLDER_SIZE`, inode and mode."""
FOLDER_SIZE = -1
FILE: Status = (0, 0, 0)


class Scan:
    """A snapshot of names, sizes and times in folders.

    Args:
        folder: The working directory; changes inside are named by relative paths, all other changes by absolute paths.
        others: Further folders, after the working directory. Links are not followed anywhere.
        max_entries: Most entries of all folders together.
        metadata_alone: Whether nothing but metadata can be changed by a trial, as under Landlock. Other programs made
            any other change.
        skipped: A folder of ours; None without such a folder.
        memory: Folder of shared memory.
    """

    def __init__(
        self,
        folder: Path,
        others: Sequence[Path] = (),
        *,
        max_entries: int = MAX_ENTRIES,
        metadata_alone: bool = False,
        skipped: Path | None = None,
        memory: Path = shared_files.FOLDER,
    ) -> None:
        self._folders = (folder, *(other for other in others if folder not in (other, *other.parents)))
        self._max_entries, self._metadata_alone, self._skipped = max_entries, metadata_alone, str(skipped)
        self._memory, self._in_memory = memory, _files_in_memory(memory)
        self._before, self._listed, self._is_whole = self._scan()

    def changes(self) -> tuple[str, ...]:
        """Paths made, changed or removed since the snapshot; then, in parentheses, notes on entries left out.

        At most 50 are named, and of a new or removed folder the folder alone. Paths inside the working directory come
        first: other programs may have made many of the other changes. Open files of this process, such as the study's
        database, do not count.
        """
        after, _, is_whole_after = self._scan()
        own = _open_files()
        names = {name for name in self._before if name in after or not os.path.lexists(name)}
        names.update(name for name in after if os.path.dirname(name) in self._listed)  # noqa: PTH120
        changed = [name for name in names if self._is_changed(name, after) and not _is_own(name, own)]
        gone = {name for name in changed if self._before.get(name, after.get(name, FILE))[0] == FOLDER_SIZE}
        gone = {name for name in gone if (name in self._before) != (name in after)}
        changed = [name for name in changed if gone.isdisjoint(_above(name))] + self._changed_memory()
        home = f"{self._folders[0]}/"
        changed = sorted_changes(name.removeprefix(home) for name in changed)
        is_whole = not changed or (self._is_whole and is_whole_after)
        notes = [] if is_whole else [f"(only {self._max_entries} entries were compared)"]
        if len(changed) > MAX_NAMED:
            notes.insert(0, f"(and {len(changed) - MAX_NAMED} more)")
        return (*changed[:MAX_NAMED], *notes)

    def _changed_memory(self) -> list[str]:
        """Earlier files in shared memory, changed or removed since the snapshot."""
        now = _files_in_memory(self._memory)
        return [name for name, status in self._in_memory.items() if now.get(name) != status]

    def _scan(self) -> tuple[dict[str, Status], set[str], bool]:
        """Status by path, folders with all entries in the scan, and whether the scan is complete.

        The folders take turns, level by level: a large folder leaves entries for the other folders.
        """
        seen: dict[str, Status] = {}
        queue = deque(map(str, self._folders))
        queued = {*queue, self._skipped}
        listed = {ROOT}
        while queue:
            folder = queue.popleft()
            try:
                with os.scandir(folder) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in found:
                if entry.path in seen or entry.path == self._skipped:
                    continue
                if len(seen) >= self._max_entries:
                    return _entries(ROOT) | seen, listed, False
                with suppress(OSError):
                    seen[entry.path] = _status(entry)
                    if seen[entry.path][0] == FOLDER_SIZE and entry.path not in queued:
                        queued.add(entry.path)
                        queue.append(entry.path)
            listed.add(folder)
        return _entries(ROOT) | seen, listed, True

    def _is_changed(self, name: str, after: Mapping[str, Status]) -> bool:
        before, now = self._before.get(name), after.get(name)
        if self._metadata_alone and (before is None or now is None or before[:2] != now[:2]):
            return False
        return before != now


def sorted_changes(changes: Iterable[str]) -> list[str]:
    """Changes in the order in which they are told: the working directory's, others', notes in parentheses."""
    return sorted(changes, key=lambda change: (change.startswith("("), change.startswith("/"), change))


def _above(path: str) -> Iterator[str]:
    """The folders above a path, the nearest first."""
    while len(path := os.path.dirname(path)) > 1:  # noqa: PTH120  called for every change
        yield path


def _status(entry: os.DirEntry[str]) -> Status:
    """A state to compare; a folder has no size and no times.

    Raises:
        OSError: The entry is gone.
    """
    status = entry.stat(follow_symlinks=False)
    if entry.is_dir(follow_symlinks=False):
        return (FOLDER_SIZE, status.st_ino, status.st_mode)
    return (status.st_size, status.st_ino, status.st_ctime_ns)


def _entries(folder: str) -> dict[str, Status]:
    """Status of the entries right in a folder, by path."""
    found = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                found[entry.path] = _status(entry)
    return found


def _files_in_memory(folder: Path) -> dict[str, Status]:
    """Status of the plain files in shared memory, except files of libraries and servers, by path."""
    found = _entries(str(folder))
    return {
        path: status
        for path, status in found.items()
        if status[0] != FOLDER_SIZE
        and not shared_files.NAMES.match(Path(path).name)
        and not Path(path).name.startswith(OF_SERVERS)
    }


def _open_files() -> set[str]:
    """Real paths of this process's open files; empty if the system does not say."""
    try:
        return {os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()}
    except OSError:
        return set()


def _is_own(path: str, own: set[str]) -> bool:
    """Whether this process has a file open, or the database of a SQLite journal."""
    real = os.path.realpath(path)
    return real in own or any(real.startswith(f"{name}-") for name in own)
