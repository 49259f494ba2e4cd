"""The order of a recording: rounds over all cells, grouped by process and build, with anchors in between."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from autotune.protocol.job import TrialJob
from autotune.runner.runner import KeepingRunner, Runner
from autotune.settings import Settings, graph_kind
from autotune.study.jobs import Jobs

CELLS_PER_ANCHOR = 12
"""Cells between two turns of the anchors: measuring drift takes up to a seventh of the time."""
BASELINE = 0
"""Position of the script's own settings among the cells."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One due measurement."""

    cell: int
    round: int
    anchor: int | None = None


@dataclass(frozen=True, slots=True)
class CellKind:
    """What a cell can share with other cells."""

    process: int = 0
    """Number shared by all cells that one process can measure."""
    build: Hashable = None
    """Build of the compiled model; None without compilation."""


def kinds_of(settings: Sequence[Settings], jobs: Jobs, runner: Runner) -> tuple[CellKind, ...]:
    """The kind of each cell; a single kind for all cells when each measurement starts a process.

    Args:
        settings: Settings of the cells.
        jobs: Makes the jobs.
        runner: Knows which settings a running process can switch.
    """
    if not jobs.is_live or not isinstance(runner, KeepingRunner):
        return (CellKind(),) * len(settings)
    firsts: list[TrialJob] = []
    kinds = []
    for each in settings:
        job = jobs.trial(each)
        process = next((n for n, first in enumerate(firsts) if runner.can_switch(first, job)), len(firsts))
        if process == len(firsts):
            firsts.append(job)
        kinds.append(CellKind(process, graph_kind(each) if each.compile else None))
    return tuple(kinds)


def grouped(cells: Sequence[int], kind_of: Callable[[int], Hashable]) -> list[list[int]]:
    """The cells by kind; kinds and cells keep the order of first occurrence."""
    groups: dict[Hashable, list[int]] = {}
    for cell in cells:
        groups.setdefault(kind_of(cell), []).append(cell)
    return list(groups.values())


class GridOrder:
    """All turns of a recording, equal in every resume.

    Each round draws a new random order, grouped by process and then by build.

    Args:
        kinds: Kinds of the cells.
        repeats: Rounds over all cells.
        seed: Seed of the order.
        fastest: Picks the second anchor among cells, after the first anchors; None while unknown.
    """

    def __init__(
        self,
        kinds: Sequence[CellKind],
        *,
        repeats: int,
        seed: int,
        fastest: Callable[[Sequence[int]], int | None],
    ) -> None:
        self._kinds, self._repeats, self._seed, self._fastest = kinds, repeats, seed, fastest
        self._beside_baseline = tuple(n for n, kind in enumerate(kinds) if kind.process == kinds[BASELINE].process)

    def turns(self) -> Iterator[Turn]:
        """All turns in order; the anchors depend on the turns measured before."""
        slot, last = itertools.count(), BASELINE
        for number in range(self._repeats):
            num_since = CELLS_PER_ANCHOR
            for group in self._groups(number, last):
                has_anchors = self._has_anchors(group)
                for cell in group:
                    is_new = self._kinds[cell].process != self._kinds[last].process
                    if is_new and has_anchors and BASELINE not in group:
                        num_since = 0  # The group's anchor is its fastest cell, unknown before its first round.
                    if num_since >= CELLS_PER_ANCHOR and (has_anchors or is_new):
                        yield from self._anchors(next(slot), number, group)
                        num_since = 0
                    yield Turn(cell, number)
                    num_since, last = num_since + 1, cell
        yield from self._anchors(next(slot), self._repeats - 1, self._beside_baseline)

    def _groups(self, number: int, last: int) -> list[list[int]]:
        """The cells of a round by process, beginning with the process of the cell before the round."""
        order = list(range(len(self._kinds)))
        random.Random(f"{self._seed} {number}").shuffle(order)
        groups = grouped(order, lambda cell: self._kinds[cell].process)
        groups.sort(key=lambda group: self._kinds[group[0]].process != self._kinds[last].process)
        return [list(itertools.chain(*grouped(group, lambda cell: self._kinds[cell].build))) for group in groups]

    def _has_anchors(self, group: Sequence[int]) -> bool:
        """Whether anchors are measured within the group: others would need two processes more."""
        return BASELINE in group or len(group) >= CELLS_PER_ANCHOR

    def _anchors(self, slot: int, number: int, group: Sequence[int]) -> Iterator[Turn]:
        """The baseline, and from the second turn of the anchors on the fastest cell beside the baseline.

        In a large group without the baseline, the group's fastest cell is the only anchor.
        """
        if slot and BASELINE not in group and self._has_anchors(group):
            fastest = self._fastest(group)
            if fastest is not None:
                yield Turn(fastest, number, slot)
            return
        yield Turn(BASELINE, number, slot)
        other = self._fastest(self._beside_baseline) if slot else None
        if other is not None:
            yield Turn(other, number, slot)
