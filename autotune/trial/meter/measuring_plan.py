"""Defines the meter's plan, and the meter's interfaces to epochs and to an observer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autotune.measure.window_stopping import WindowRule


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Facts and limits of a trial for the meter."""

    rule: WindowRule
    has_loader: bool
    num_workers: int
    num_queued: int
    """Batches that the loader may hold ready: workers times prefetch, or an estimate for loaders of another kind."""
    micro_batches_per_step: int
    incumbent_samples_per_second: float | None
    """The rate that this rank must beat: an even share of the best rate, since all ranks make equal steps together."""
    samples_per_step: float | None
    """Samples of one optimizer step, if the user declared a number or the batches cannot be counted."""
    has_foreign_loader: bool = False
    """Whether the batches come from a loader of another library, and a cached batch can take their place."""
    can_cache: bool = True
    """Whether a cached batch can take the place of the loader's batches."""
    epoch_micro_batches: int | None = None
    """Micro-batches of the training loader's epoch; None without a length."""
    batches_vary: bool = False
    """True when batches differ in size, so that the cached batch says nothing of other batches."""
    is_compute_only: bool = False
    """True to end the trial after the compute-only rate."""
    first_batch_s: float = 0.0
    """Seconds from the start of an iteration to the first batch."""
    script_steps: int | None = None
    """Optimizer steps after which the script ends by itself; None when the script outlasts the trial."""

    @property
    def has_cached_batch(self) -> bool:
        """Whether the script can train on a cached batch."""
        return self.can_cache and (self.has_loader or self.has_foreign_loader)


class Watcher(Protocol):
    """Observes the training loop after the measurement."""

    def begin(self) -> None:
        """Begins the observation."""

    def stepped(self) -> bool:
        """Notes a step; True when the observation is complete."""


class Epochs(Protocol):
    """Ends an epoch of the training loader and begins the next, in place of the script."""

    def end_epoch(self, num_needed: int) -> float | None:
        """Takes the loader's ready batches, and ends the epoch; returns the seconds of the end, None if impossible.

        Args:
            num_needed: Batches of the next epoch to give to the script within the script's current loop.
        """

    def begin_epoch(self) -> None:
        """Begins the next epoch within the script's current loop."""
