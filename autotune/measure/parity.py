"""Whether two runs that begin alike train alike: the first losses of one against those of a reference in fp32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_RISE = 1.05
"""A reference that rises above so many times its first loss trains unstably, as large learning rates do in their first
steps: from there on the smallest difference grows with every step, whatever the format. Seen with a ResNet-50 at a
learning rate of 0.1, whose losses in fp32 and bf16 agreed at first and were 15.5 and 10.7 six steps later."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossReference:
    """The first losses of a run in fp32, and what they follow from."""

    start_digest: str
    """Of the initial weights and the first batch: runs with another one cannot be compared."""
    losses: tuple[float, ...]
    """Per backward pass, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """Where the losses of a run are farthest from the reference's."""

    index: int
    """Backward pass, from 0."""
    loss: float
    reference: float
    ratio: float
    """Difference over the reference's loss there or at the start, whichever is larger: a loss that is nearly zero after
    a few steps over one batch has no scale of its own. Infinite where the loss is not finite."""


def largest_departure(losses: Sequence[float], reference: Sequence[float]) -> Departure | None:
    """The pass in which two runs differ most, of those before the reference became unstable; None where there is none.

    The first pass always counts: the two have the same weights there.
    """
    steady = _steady(reference)
    pairs = list(zip(losses, steady, strict=False))
    if not pairs or steady[0] == 0:
        return None
    departures = [
        Departure(index=i, loss=loss, reference=other, ratio=_ratio(loss, other, reference[0]))
        for i, (loss, other) in enumerate(pairs)
    ]
    return max(departures, key=lambda departure: departure.ratio)


def _steady(reference: Sequence[float]) -> Sequence[float]:
    """The losses before the first that is far above the first one, or not finite."""
    for index, loss in enumerate(reference):
        if not math.isfinite(loss) or abs(loss) > MAX_RISE * abs(reference[0]):
            return reference[:index]
    return reference


def matching(references: Iterable[LossReference], start_digest: str | None) -> LossReference | None:
    """The reference that began with the same weights and the same batch."""
    return next((reference for reference in references if reference.start_digest == start_digest), None)


def _ratio(loss: float, reference: float, first: float) -> float:
    return abs(loss - reference) / max(abs(reference), abs(first)) if math.isfinite(loss) else math.inf
