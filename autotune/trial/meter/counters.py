"""Counts batches, samples and steps from one `next()` to the next: all work of the meter on the path of a step.

All counts are totals since the beginning. A step only adds to the totals, and a block is the difference of two totals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autotune.trial.meter.block_recorder import Count


class StepCounts(Protocol):
    """Totals of a framework's training; `trial.step.steps.Steps` counts torch's."""

    num_backwards: int
    num_steps: int
    """Optimizer steps that updated parameters."""
    num_updates: int
    """Due optimizer steps, done or skipped."""
    num_skipped: int
    thread: int
    """The thread that trains."""


def declared_samples(of_all_ranks: float | None, *, counts_batches: bool, world_size: int) -> float | None:
    """Samples of an optimizer step on one rank, where no batches are counted; None to count the rank's batches.

    The rate of a trial sums the samples of all ranks, of which each takes part in every step.

    Args:
        of_all_ranks: Samples of a step on all ranks together, as given by the user.
        counts_batches: Whether the samples can be counted from batches; otherwise a step counts as one sample.
        world_size: Number of ranks.
    """
    if of_all_ranks is None and counts_batches:
        return None
    return (1.0 if of_all_ranks is None else of_all_ranks) / world_size


class Counters:
    """Totals of the batches that the script took and used; reports the ends of steps and blocks.

    The class has few attributes, in slots: a model's work between two steps pushes them out of the processor's caches.

    Args:
        steps: Counts of backward passes and steps.
        has_loader: True when micro-steps are batches; False when micro-steps are optimizer steps.
        samples_per_step: Samples of one optimizer step on this rank; None to sum the samples of the step's batches.
        micro_batches_per_step: Batches of one step.
        end_step: Called at the end of a step within a block; may be None.
        end_block: Called at the end of a step that ends a block.
    """

    __slots__ = (
        "_block_end",
        "_end_block",
        "_end_step",
        "_has_loader",
        "_is_pass_new",
        "_micro_batches_per_step",
        "_num_ahead",
        "_num_backwards",
        "_num_skipped_before",
        "_num_taken_before",
        "_num_updates_before",
        "_num_used",
        "_num_used_before",
        "_samples_per_step",
        "_samples_taken_before",
        "_samples_used",
        "_samples_used_before",
        "_steps",
        "_wait_s_before",
        "latest_num_samples",
        "num_taken",
        "num_updates",
        "samples_taken",
        "wait_s",
    )

    def __init__(
        self,
        steps: StepCounts,
        *,
        has_loader: bool,
        samples_per_step: float | None,
        micro_batches_per_step: int,
        end_step: Callable[[], None] | None,
        end_block: Callable[[], None],
    ) -> None:
        self._steps = steps
        self._has_loader, self._samples_per_step = has_loader, samples_per_step
        self._end_step, self._end_block = end_step, end_block
        self.num_taken = 0
        """Batches that the script has taken."""
        self.samples_taken = self.latest_num_samples = 0.0
        self.wait_s = 0.0
        """Seconds that the script has waited for batches."""
        self.num_updates = steps.num_updates
        """Optimizer steps, as of the last arrival."""
        self._num_backwards = steps.num_backwards
        self._num_used, self._samples_used = 0, 0.0
        """Batches used by a backward pass, and samples in these batches; without a loader, optimizer steps."""
        self._micro_batches_per_step = micro_batches_per_step
        self._num_ahead = 0
        """Batches that the script took before the first step of the pass beyond the need of the step."""
        self._is_pass_new = False
        self._num_taken_before, self._samples_taken_before = 0, 0.0
        """Batches and samples taken before the running pass."""
        self._block_end = 1
        self.begin_block()

    def delivered(self, num_samples: float, wait_s: float) -> None:
        """Notes a batch given to the script, and the script's wait in seconds."""
        self.num_taken += 1
        self.samples_taken += num_samples
        self.latest_num_samples = num_samples
        self.wait_s += wait_s

    def arrive(self) -> None:
        """Notes the end of a micro-step, which may end a step and a block."""
        steps = self._steps
        if steps.num_backwards != self._num_backwards:
            # Batches count from the backward pass on, not when the script only reads.
            self._num_backwards = steps.num_backwards
            if self._is_pass_new:
                self._is_pass_new = False
                self._num_ahead = max(0, self.num_taken - self._num_used - self._micro_batches_per_step)
            self._num_used, self._samples_used = self.num_taken, self.samples_taken
        if steps.num_updates == self.num_updates:
            return
        self.num_updates = steps.num_updates
        if not self._has_loader:
            self._num_used = self.num_updates
        if self._num_used >= self._block_end:
            self._end_block()
        elif self._end_step is not None:
            self._end_step()

    def foreign_batch(self, num_samples: float, wait_s: float) -> None:
        """Notes a batch of a loader that is no DataLoader; micro-steps stay optimizer steps."""
        self.samples_taken += num_samples
        self.wait_s += wait_s

    def begin_pass(self, *, is_left: bool, is_read_ahead: bool = False) -> None:
        """Notes that the script iterates anew; unused batches of the last pass no longer count.

        Args:
            is_left: Whether the script left the last pass before the end. No step will use the batches taken in
                advance.
            is_read_ahead: Whether a separate thread reads the loader. At the end of a complete pass unused batches wait
                in the script's own queue for a later step, and still count.
        """
        self._num_taken_before, self._samples_taken_before = self.num_taken, self.samples_taken
        if is_left:
            self._num_used -= self._num_ahead
            self._samples_used -= self._num_ahead * self.latest_num_samples
        if is_left or not is_read_ahead:
            self.num_taken, self.samples_taken = self._num_used, self._samples_used
        self._is_pass_new, self._num_ahead = True, 0

    def end_read_pass(self) -> None:
        """Drops the counts of the running pass, which was only read; the pass before may go on with its batches."""
        self.num_taken, self.samples_taken = self._num_taken_before, self._samples_taken_before

    def begin_block(self, num_micro_batches: int = 1) -> None:
        """Begins a block of at least `num_micro_batches` micro-batches with the next step."""
        steps = self._steps
        self.num_updates = self._num_updates_before = steps.num_updates
        self._num_skipped_before = steps.num_skipped
        if not self._has_loader:
            self._num_used = self.num_updates
        self._num_used_before, self._samples_used_before = self._num_used, self._samples_used
        self._wait_s_before = self.wait_s
        self._block_end = self._num_used + num_micro_batches

    def fill(self, count: Count) -> None:
        """Fills in the counts of the ending block, and begins the next block with the same length."""
        num_micro_batches = self._block_end - self._num_used_before
        count.num_steps = self.num_updates - self._num_updates_before
        count.num_micro_batches = self._num_used - self._num_used_before
        count.num_skipped_steps = self._steps.num_skipped - self._num_skipped_before
        count.wait_s = self.wait_s - self._wait_s_before
        if self._samples_per_step is None:
            count.num_samples = self._samples_used - self._samples_used_before
        else:
            count.num_samples = self._samples_per_step * count.num_steps
        self.begin_block(num_micro_batches)
