"""What the meter must know of a trial before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autotune.measure.window_stopping import WindowRule


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What the meter must know of the trial."""

    rule: WindowRule
    has_loader: bool
    num_workers: int
    num_queued: int
    """Batches that the loader may hold ready: workers times prefetch. Of another kind of loader, what it may be."""
    micro_batches_per_step: int
    incumbent_samples_per_second: float | None
    """The rate that this rank has to beat: ranks make alike steps together, so it is an even share of the best one."""
    samples_per_step: float | None
    """Samples of one optimizer step, where the user declared them or nobody can count them."""
    epoch_micro_batches: int | None = None
    """Of the training loader's epoch; None where it has no length."""
    batches_vary: bool = False
    """Batches differ in size: what the cached one takes says nothing of the others."""
    is_compute_only: bool = False
    """End after the compute-only rate: nothing else of this trial is of use."""
    first_batch_s: float = 0.0
    """From asking for the loader's iteration until its first batch."""
    script_steps: int | None = None
    """Optimizer steps after which the script ends by itself."""


class Watcher(Protocol):
    """Looks at the training loop once all is measured."""

    def begin(self) -> None:
        """Begins to look."""

    def stepped(self) -> bool:
        """A step was made; whether all was seen."""


class Epochs(Protocol):
    """Ends an epoch of the training loader and begins the next, in place of the script."""

    def end_epoch(self, num_needed: int) -> float | None:
        """Takes what the loader has ready, and ends; seconds of the end itself, None where that cannot be done.

        Args:
            num_needed: Batches of the next epoch that the script will take for more of this one.
        """

    def begin_epoch(self) -> None:
        """Begins the next epoch, in which the script goes on."""
