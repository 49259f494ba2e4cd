"""The user's files changed by a trial in spite of the protection: folders compared before and after."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

MAX_ENTRIES = 20_000
"""A scan of more would take longer than a short trial; further entries are not compared."""
MAX_NAMED = 50

Status = tuple[int, int, int]
"""Size, inode, and the time of the last change of content or metadata; of a folder 0, inode and mode."""


class Scan:
    """A snapshot of names, sizes and times in folders.

    Args:
        folder: The working directory; changes inside are named by relative paths, all other changes by absolute paths.
        others: Further folders, after the working directory. Links are not followed anywhere.
        max_entries: Most entries of all folders together.
        metadata_alone: Whether nothing but metadata can be changed by a trial, as under Landlock. Other programs made
            any other change.
    """

    def __init__(
        self,
        folder: Path,
        others: Sequence[Path] = (),
        *,
        max_entries: int = MAX_ENTRIES,
        metadata_alone: bool = False,
    ) -> None:
        self._folders = (folder, *(other for other in others if folder not in (other, *other.parents)))
        self._max_entries, self._metadata_alone = max_entries, metadata_alone
        self._before, self._is_whole = _scan(self._folders, max_entries)

    def changes(self) -> tuple[str, ...]:
        """Paths made, changed or removed since the snapshot; then, in parentheses, notes on entries left out.

        At most 50 are named. Open files of this process, such as the study's database, do not count.
        """
        after, is_whole_after = _scan(self._folders, self._max_entries)
        own = _open_files()
        names = {name for name in self._before if name in after or not os.path.lexists(name)}
        if self._is_whole and is_whole_after:
            names.update(after)
        changed = sorted(name for name in names if self._is_changed(name, after) and not _is_own(name, own))
        home = f"{self._folders[0]}/"
        is_whole = not changed or (self._is_whole and is_whole_after)
        notes = [] if is_whole else [f"(only {self._max_entries} entries were compared)"]
        if len(changed) > MAX_NAMED:
            notes.insert(0, f"(and {len(changed) - MAX_NAMED} more)")
        return (*(name.removeprefix(home) for name in changed[:MAX_NAMED]), *notes)

    def _is_changed(self, name: str, after: Mapping[str, Status]) -> bool:
        before, now = self._before.get(name), after.get(name)
        if self._metadata_alone and (before is None or now is None or before[:2] != now[:2]):
            return False
        return before != now


def _scan(folders: Sequence[Path], max_entries: int) -> tuple[dict[str, Status], bool]:
    """Status by path, for folders without size and times; and whether the scan is complete.

    The folders take turns, level by level, so that a large one leaves room for the others.
    """
    seen: dict[str, Status] = {}
    queue = deque(map(str, folders))
    while queue:
        try:
            with os.scandir(queue.popleft()) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in found:
            if entry.path in seen:
                continue
            if len(seen) >= max_entries:
                return seen, False
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if entry.is_dir(follow_symlinks=False):
                seen[entry.path] = (0, status.st_ino, status.st_mode)
                queue.append(entry.path)
            else:
                seen[entry.path] = (status.st_size, status.st_ino, status.st_ctime_ns)
    return seen, True


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
