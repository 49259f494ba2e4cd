"""The raw results, one JSON object per line: what is there is not measured again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Rows:
    """Rows by part and key, added to a file as they come.

    Args:
        path: The file; made when the first row comes.
        limit_s: Nothing is begun that, going by the longest so far of the same part, would end later than this.
    """

    def __init__(self, path: Path, limit_s: float) -> None:
        self._path = path
        self._deadline = time.monotonic() + limit_s
        lines = path.read_text().splitlines() if path.exists() else []
        self._rows: list[Row] = [json.loads(line) for line in lines]

    def of(self, part: str) -> list[Row]:
        """The rows of a part, in the order in which they were measured."""
        return [row for row in self._rows if row["part"] == part]

    def add(self, part: str, key: str, wall_s: float, values: Row) -> Row:
        """Writes a row down and says it."""
        row = {"part": part, "key": key, "wall_s": round(wall_s, 2), **values}
        self._rows.append(row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        return row

    def missing(self, part: str, keys: Iterable[str]) -> list[str]:
        """The keys of a part that have no row."""
        known = {row["key"] for row in self.of(part)}
        return [key for key in keys if key not in known]

    def has_time(self, part: str, expected_s: float) -> bool:
        """Whether one more row of a part can be measured in time."""
        longest_s = max((row["wall_s"] for row in self.of(part)), default=expected_s)
        return time.monotonic() + longest_s < self._deadline

    def fill(self, part: str, keys: Iterable[str], measure: Callable[[str], Row], *, expected_s: float) -> bool:
        """Measures what is missing while there is time; whether the part is complete."""
        for key in self.missing(part, keys):
            if not self.has_time(part, expected_s):
                return False
            began = time.monotonic()
            values = measure(key)
            self.add(part, key, time.monotonic() - began, values)
        return True
