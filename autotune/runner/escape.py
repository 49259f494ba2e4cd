"""Which of the user's files a trial changed in spite of its protection: a folder compared before and after."""

from __future__ import annotations

import os
from pathlib import Path

MAX_ENTRIES = 20_000
"""A scan of more would take longer than a short trial; what lies beyond is not compared."""
MAX_NAMED = 50


class Scan:
    """The names, sizes and times in a folder, as they are now.

    Args:
        folder: The folder; links in it are not followed.
        max_entries: Entries that are looked at.
    """

    def __init__(self, folder: Path, max_entries: int = MAX_ENTRIES) -> None:
        self._folder, self._max_entries = folder, max_entries
        self._before, self._is_whole = _scan(folder, max_entries)

    def changes(self) -> tuple[str, ...]:
        """Paths that were made, changed or removed since, relative to the folder; and what was not compared.

        At most 50 are named. Files that this process itself has open, such as the study's database, are not meant.
        """
        after, is_whole_after = _scan(self._folder, self._max_entries)
        own = _open_files()
        names = {*self._before, *after} if self._is_whole and is_whole_after else {*self._before} & {*after}
        changed = sorted(
            name
            for name in names
            if self._before.get(name) != after.get(name) and not _is_own(os.path.join(self._folder, name), own)  # noqa: PTH118
        )
        notes = [] if self._is_whole and is_whole_after else [f"(only {self._max_entries} entries were compared)"]
        if len(changed) > MAX_NAMED:
            notes.insert(0, f"(and {len(changed) - MAX_NAMED} more)")
        return (*changed[:MAX_NAMED], *notes)


def _scan(folder: Path, max_entries: int) -> tuple[dict[str, tuple[int, ...]], bool]:
    """(size, time of change, inode) by relative path, folders by their existence; and whether that is all."""
    seen: dict[str, tuple[int, ...]] = {}
    queue = [""]
    while queue:
        relative = queue.pop(0)
        try:
            with os.scandir(folder / relative) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in found:
            if len(seen) >= max_entries:
                return seen, False
            name = f"{relative}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                seen[name] = ()
                queue.append(f"{name}/")
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            seen[name] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return seen, True


def _open_files() -> set[str]:
    """Real paths of what this process has open; empty where the system does not say."""
    try:
        return {os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()}
    except OSError:
        return set()


def _is_own(path: str, own: set[str]) -> bool:
    """Whether it is open here, or stands beside what is: SQLite's journals are named after their database."""
    real = os.path.realpath(path)
    return real in own or any(real.startswith(f"{name}-") for name in own)
