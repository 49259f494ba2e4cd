"""Tells whether two runs with the same start train alike, from the first losses of a run and of a reference in fp32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

FAST_CHANGE = 0.05
"""Share of the first loss. When the reference's loss changes by more from pass to pass, each further step multiplies
the smallest difference, in any format. Example: a ResNet-50 at a learning rate of 0.1, with equal losses in fp32 and
bf16 at first, had losses of 15.5 and 10.7 six steps later, and of 6.16 and 7.75 in another run."""
CHANGE_TOLERANCE = 0.5
"""Share of a fast change by which two runs may differ right after the change: a wrong gradient moves the loss by a
quite different amount."""
MOVE_TOLERANCE = 0.3
"""Largest difference of two losses as a share of the distance that the reference's loss has moved, up and down. Each
step multiplies small differences. Two runs of a CIFAR network in fp32 at a learning rate of 0.1, one of them with
channels_last, differed by 0.12 in pass 7; the loss had moved by 0.34. The losses of a model with outputs 1.5 times too
large differed by the whole distance."""
CLEAR_MOVE = 0.05
"""Share of the first loss. A reference with a smaller move does not tell whether a run should move."""
LEAST_MOVE = 0.25
"""Least share of the reference's move required of a run: weights cast once and kept do not move."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossReference:
    """The first losses of a run in fp32, with a digest of the run's start."""

    start_digest: str
    """Digest of the initial weights and the first batch; only runs with the same digest can be compared."""
    losses: tuple[float, ...]
    """Per backward pass, in order."""
    batches: tuple[int, ...] = ()
    """For each of these passes a checksum of the training loader's batches before the pass; shorter than `losses` when
    later batches are unknown, and empty when all are."""

    def num_comparable(self, batches: Sequence[int]) -> int:
        """The number of first passes on the same batches as another run; 1 when batches are unknown.

        A trial repeats its first batch until the step time is steady, and goes on to the next batches then. With long
        steps it goes on within the first passes, and in every run after a different pass.

        Args:
            batches: Checksums of the other run, whose start has the same digest.
        """
        if not batches or not self.batches:
            return 1
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(batches, self.batches, strict=False)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """A backward pass with a loss outside the range that the reference's loss allows."""

    index: int
    """Backward pass, from 0."""
    loss: float
    reference: float
    ratio: float
    """Difference divided by the reference's loss in this pass or at the start, whichever is larger: a loss near zero
    after a few steps over a single batch has no scale. Infinite when the loss is not finite."""
    allowed_ratio: float = 0.0
    """Largest difference allowed in this pass, of the same scale; 0 for a run at rest."""
    is_at_rest: bool = False
    """True when the run hardly moved from the first loss while the reference did."""


def departure(losses: Sequence[float], reference: Sequence[float], tolerance: float) -> Departure | None:
    """The first pass in which a run departs from the reference; None when the run trains alike.

    Pass by pass the two losses agree within the tolerance and MOVE_TOLERANCE times the distance that the reference has
    moved, up to the first fast change of the reference. The pass right after a fast change may differ by
    CHANGE_TOLERANCE times the change. Later passes are not compared, because any two runs part after a fast change. A
    run must also move when the reference moves.

    Args:
        losses: Losses of the run, per backward pass.
        reference: Losses of the reference, per backward pass, from the same initial weights and first batch.
        tolerance: Largest difference of the first pass, as a share of the reference's loss.
    """
    if not reference or reference[0] == 0 or not math.isfinite(reference[0]):
        return None
    first, moved = abs(reference[0]), 0.0
    for index, (loss, other) in enumerate(zip(losses, reference, strict=False)):
        if not math.isfinite(other):
            return None
        change = abs(other - reference[index - 1]) if index else 0.0
        moved += change
        is_fast = change > FAST_CHANGE * first
        allowed = tolerance * max(abs(other), first) + max(MOVE_TOLERANCE * moved, CHANGE_TOLERANCE * change * is_fast)
        if not math.isfinite(loss) or abs(loss - other) > allowed:
            ratio, allowed_ratio = _ratio(loss, other, first), allowed / max(abs(other), first)
            return Departure(index=index, loss=loss, reference=other, ratio=ratio, allowed_ratio=allowed_ratio)
        if is_fast:
            break
    return _at_rest(losses, reference)


def _at_rest(losses: Sequence[float], reference: Sequence[float]) -> Departure | None:
    """The pass of the reference's largest move from the first loss, where the run hardly moved; None if it moved."""
    both = [(loss, other) for loss, other in zip(losses, reference, strict=False) if math.isfinite(other)]
    if not both:
        return None
    index = max(range(len(both)), key=lambda i: abs(both[i][1] - reference[0]))
    loss, other = both[index]
    move = abs(other - reference[0])
    own = max(abs(value - losses[0]) for value, _ in both)
    if move <= CLEAR_MOVE * abs(reference[0]) or not own < LEAST_MOVE * move:
        return None
    ratio = _ratio(loss, other, abs(reference[0]))
    return Departure(index=index, loss=loss, reference=other, ratio=ratio, is_at_rest=True)


def matching(references: Iterable[LossReference], start_digest: str | None) -> LossReference | None:
    """The reference with the same initial weights and first batch; None without a match."""
    return next((reference for reference in references if reference.start_digest == start_digest), None)


def _ratio(loss: float, reference: float, first: float) -> float:
    return abs(loss - reference) / max(abs(reference), first) if math.isfinite(loss) else math.inf
