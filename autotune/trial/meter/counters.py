"""What is done in every step while the clock runs: batches, samples and steps counted, from one `next()` to the next.

All counts are totals since the beginning: a step only adds to them, and what a block holds is the difference of two.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.trial.meter.block_recorder import Count
from autotune.trial.step.steps import Steps


class Counters:
    """Totals of what the script took and used; says when a step and a block are over.

    Slots, and few of them: with a model's work between two steps, all that a step reads has left the caches.

    Args:
        steps: Counts of backward passes and steps.
        has_loader: Whether micro-steps are batches; otherwise they are optimizer steps.
        samples_per_step: Samples of one optimizer step, where they are not those of its batches.
        micro_batches_per_step: Batches that a step takes.
        end_step: Called at the end of a step that ends no block; None = nobody.
        end_block: Called at the end of one that does.
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
        steps: Steps,
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
        """What it has waited for them."""
        self.num_updates = steps.num_updates
        """Optimizer steps, as of the last arrival."""
        self._num_backwards = steps.num_backwards
        self._num_used, self._samples_used = 0, 0.0
        """Of the batches taken, those that a backward pass has used; without a loader, optimizer steps."""
        self._micro_batches_per_step = micro_batches_per_step
        self._num_ahead = 0
        """Batches that the script holds beyond those of its step, having taken so many before the pass's first step."""
        self._is_pass_new = False
        self._num_taken_before, self._samples_taken_before = 0, 0.0
        """Of the batches taken, those before the running pass."""
        self._block_end = 1
        self.begin_block()

    def delivered(self, num_samples: float, wait_s: float) -> None:
        """Notes a batch that the script was given, and how long it waited for it."""
        self.num_taken += 1
        self.samples_taken += num_samples
        self.latest_num_samples = num_samples
        self.wait_s += wait_s

    def arrive(self) -> None:
        """A micro-step ended; may end a step, and with it a block."""
        steps = self._steps
        if steps.num_backwards != self._num_backwards:
            # Batches count when a backward pass has used them, and not when they were only read.
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

    def begin_pass(self, *, is_left: bool, is_read_ahead: bool = False) -> None:
        """The script begins to iterate anew: what it only read of the pass before does not count.

        Args:
            is_left: Whether it left that before its end, and with it batches that were counted when they were taken
                ahead, and that no step will ever use.
            is_read_ahead: Whether a thread reads for the one that trains: what it has read by the end of a pass waits
                in a queue of the script's, and is used later.
        """
        self._num_taken_before, self._samples_taken_before = self.num_taken, self.samples_taken
        if is_left:
            self._num_used -= self._num_ahead
            self._samples_used -= self._num_ahead * self.latest_num_samples
        if is_left or not is_read_ahead:
            self.num_taken, self.samples_taken = self._num_used, self._samples_used
        self._is_pass_new, self._num_ahead = True, 0

    def end_look(self) -> None:
        """The running pass was only read, and the one before may go on: with it the batches that it has in hand."""
        self.num_taken, self.samples_taken = self._num_taken_before, self._samples_taken_before

    def begin_block(self, num_micro_batches: int = 1) -> None:
        """A block of at least so many micro-batches begins with the next step."""
        steps = self._steps
        self.num_updates = self._num_updates_before = steps.num_updates
        self._num_skipped_before = steps.num_skipped
        if not self._has_loader:
            self._num_used = self.num_updates
        self._num_used_before, self._samples_used_before = self._num_used, self._samples_used
        self._wait_s_before = self.wait_s
        self._block_end = self._num_used + num_micro_batches

    def fill(self, count: Count) -> None:
        """Notes what the block holds that ends here, and begins the next one, which is as long."""
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
