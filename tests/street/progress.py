"""Rates from a script's own output: lines, and the times of their arrival."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.street.script import Progress

LEAST_COUNTED_S = 0.25
"""Least time in seconds that a rate is taken from: a burst of lines held up in a pipe says nothing of the training."""
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Terminal sequences of colours and cursor moves."""


class Lines:
    """Lines out of the chunks of a pipe; a newline or a progress bar's carriage return ends a line."""

    def __init__(self) -> None:
        self._rest = ""

    @property
    def rest(self) -> str:
        """The text after the last whole line."""
        return self._rest

    def feed(self, text: str) -> list[str]:
        """The lines completed by the chunk; the rest waits for the next chunk."""
        *whole, self._rest = re.split(r"[\r\n]+", self._rest + text)
        return [line for line in whole if line.strip()]


@dataclass
class Counter:
    """Positions of training over time, read off lines of output."""

    progress: Progress
    marks: list[tuple[float, float, int]] = field(default_factory=list)
    """Time in seconds, position in samples, and the number of the line's stretch of training."""
    epoch_length: float | None = None
    """Largest length of an epoch told so far, in the positions' unit; None where the lines do not tell."""
    told: list[tuple[float, float]] = field(default_factory=list)
    """Time of arrival and own seconds of each epoch that the script timed itself."""
    _stretch: int = 0
    _lines: int = 0
    _last: tuple[int, float] | None = None

    def line(self, time_s: float, text: str) -> bool:
        """Counts the line; True for a line of progress."""
        match = self.progress.search(STYLES.sub("", text))
        if match is None:
            return False
        self._lines += 1
        groups = match.groupdict()
        at = float(groups["at"]) if groups.get("at") else float(self._lines)
        epoch = int(groups["epoch"]) if groups.get("epoch") else 0
        if groups.get("of"):
            self.epoch_length = max(self.epoch_length or 0.0, float(groups["of"]))
        if groups.get("seconds"):
            self.told.append((time_s, float(groups["seconds"])))
        is_pause = bool(self.marks) and time_s - self.marks[-1][0] > self.progress.longest_step_s
        self._open_stretch(epoch, at, is_pause=is_pause)
        position = at * self.progress.per
        if not self.marks or self.marks[-1][1:] != (position, self._stretch):
            self.marks.append((time_s, position, self._stretch))
        return True

    def _open_stretch(self, epoch: int, at: float, *, is_pause: bool) -> None:
        """Begins a stretch after a pause, and when the count has begun anew: neither time belongs to a rate."""
        last, self._last = self._last, (epoch, at)
        if last is not None and (is_pause or epoch != last[0] or at < last[1]):
            self._stretch += 1

    @property
    def first_s(self) -> float | None:
        """Time of the first line of progress."""
        return self.marks[0][0] if self.marks else None

    @property
    def begun_s(self) -> float | None:
        """Time of the first progress beyond 0: a bar is drawn at 0 before the first step, which may compile."""
        return next((time_s for time_s, position, _ in self.marks if position > 0), None)

    def longest_gap_s(self, settle_s: float) -> float | None:
        """Longest time between two lines of progress of a stretch in the counted part, in seconds; None without two."""
        if self.begun_s is None:
            return None
        counted = self._counted(settle_s)
        gaps_s = [later[0] - earlier[0] for earlier, later in pairwise(counted) if earlier[2] == later[2]]
        return max(gaps_s, default=None)

    def rate(self, settle_s: float) -> float | None:
        """Samples per second from `settle_s` seconds after the first progress; None without two later lines of a
        stretch."""
        if self.begun_s is None:
            return None
        settled = self.begun_s + settle_s
        if self.told:
            epochs = [seconds for time_s, seconds in self.told if time_s - seconds >= settled]
            return len(epochs) * self.progress.per / sum(epochs) if epochs else None
        return rate_of(self._counted(settle_s))

    def _counted(self, settle_s: float) -> list[tuple[float, float, int]]:
        """The marks after the settling; of lines at the ends of few epochs, the last two at the least."""
        assert self.begun_s is not None
        counted = [mark for mark in self.marks if mark[0] >= self.begun_s + settle_s]
        return self.marks[-2:] if self.progress.ends_epoch and len(counted) < len(self.marks[-2:]) else counted


def rate_of(marks: Iterable[tuple[float, float, int]]) -> float | None:
    """Positions gained per second within all stretches together; None for less than LEAST_COUNTED_S."""
    spans: dict[int, list[tuple[float, float]]] = {}
    for time_s, position, stretch in marks:
        spans.setdefault(stretch, []).append((time_s, position))
    seconds = sum(points[-1][0] - points[0][0] for points in spans.values())
    gained = sum(points[-1][1] - points[0][1] for points in spans.values())
    return gained / seconds if seconds >= LEAST_COUNTED_S and gained > 0 else None
