"""The meter: phases of a trial, its blocks, and when it has seen enough.

A micro-step runs from one `next()` of the training loader to the next; where the script has no loader, from one
optimizer step to the next. Blocks end and phases change only where no gradients are pending.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.measure.block import Block, Phase
from autotune.measure.epoch import is_worth_restarting, restart_micro_batches
from autotune.measure.stopping import StopReason, block_size, decide, warmed_up
from autotune.trial.build_log import Built
from autotune.trial.clock import Clock
from autotune.trial.measuring_plan import Epochs, Plan, Watcher
from autotune.trial.ranks import MAX_STEPS_AHEAD, Agreement, Mark
from autotune.trial.recorder import Recorder
from autotune.trial.steps import Steps

MIN_WARMUP_STEPS = 3
MAX_WARMUP_S = 10.0
"""A warm-up that does not settle ends here: the job is unsteady by nature."""
STEADY_WARMUP_S = 1.5
STEADY_WARMUP_STEPS = 10
"""After so long and so many steps nothing is left to warm; the noise of a shared host alone keeps it from settling."""
LAST_WARMUP_STEPS = 6
"""Steps of the warm-up that tell whether it has settled, and how long a step takes."""
MIN_COMPUTE_BLOCKS = 5
MIN_COMPUTE_S = 0.4
MAX_COMPUTE_S = 3.0
COMPUTE_BLOCK_S = 0.02
"""Shortest block of the compute-only rate: ended after every step, the meter's own work would slow down small steps."""
DRAIN_QUEUES = 2
"""Without a gate the queue is drained this many times over before the clock starts, and the result is `primed`."""
WARM_UP_SHARE, EARLY_SHARE = 0.125, 0.25
"""Of the steps of a script that ends by itself: what the warm-up, and all before the real batches, may take."""
LEAST_QUEUED = 4
"""Batches taken for the queue of a script that reads its loader ahead by itself."""


class Meter:
    """Counts micro-steps into blocks, one phase after the other; made when the first optimizer step is done.

    Args:
        plan: What it must know of the trial.
        steps: Counts of backward passes and steps.
        clock: The clock of the device that trains.
        agreement: How the ranks change phase together.
        open_gate: Lets the loader's workers build, and says whether they had not done so before.
        finish: Ends the trial; returns in tests alone.
        at_block_end: Called whenever a block has ended on the host.
        built: What the loader's workers have built until now; None where nobody sees them.
        epochs: Begins a new epoch after the window; None where nothing is to be learned from one.
        watcher: Looks at the loop at the very end; None where nobody wants to know more than the rate.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        steps: Steps,
        clock: Clock,
        agreement: Agreement,
        open_gate: Callable[[], bool],
        finish: Callable[[StopReason], None],
        at_block_end: Callable[[Phase], None] = lambda phase: None,
        built: Callable[[], Built | None] = lambda: None,
        epochs: Epochs | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.compute_samples_per_second: float | None = None
        self.entered_at: dict[Phase, float] = {}
        """Monotonic time at which each phase began, for the accounting."""
        self.phase = Phase.WARMUP
        self.uses_token = plan.has_loader
        """Whether the script is given the cached batch now."""
        self._plan, self._steps, self._agreement = plan, steps, agreement
        self._counts_batches = plan.samples_per_step is None
        self._open_gate, self._finish = open_gate, finish
        self._at_block_end = at_block_end
        self._epochs, self._watcher = epochs, watcher
        self._reason = StopReason.TIME_LIMIT
        """Why the window ended."""
        self.epoch_end_s: float | None = None
        """What the end of an epoch took, where one was begun on purpose."""
        self._recorder = Recorder(clock, built, max_steps_ahead=MAX_STEPS_AHEAD if agreement.is_shared else None)
        self._is_queue_empty = plan.has_loader or plan.num_queued == 0
        self.num_epoch_ends = 0
        """Epochs that ended since real batches are trained on; from the second one on they are a part of the window."""
        self._is_between_epochs = False
        self._num_restart_left = 0
        """Micro-batches of the restart after its first block."""
        self._num_seen = self._entered_step = steps.num_updates
        self._num_seen_skips = steps.num_skipped
        self._num_backwards = steps.num_backwards
        self._num_taken = 0
        """Batches that the script has taken since the last backward pass."""
        self._num_samples_taken = 0.0
        self._num_ahead = 0
        """Batches that the script holds beyond those of its step, having taken so many before the pass's first step."""
        self._is_pass_new = False
        self._latest_num_samples = 0.0
        self._num_samples_done, self._waited_s = 0.0, 0.0
        """Of all blocks that have ended."""
        self._enter(Phase.WARMUP)

    def delivered(self, num_samples: float, wait_s: float) -> None:
        """Notes a batch that the script was given, and how long it waited for it."""
        self._num_taken += 1
        self._num_samples_taken += num_samples
        self._latest_num_samples = num_samples
        self._recorder.count.wait_s += wait_s

    def arrive(self) -> None:
        """A micro-step ended; may change the phase, and may end the trial."""
        steps, count = self._steps, self._recorder.count
        if steps.num_backwards != self._num_backwards:
            # Batches count when a backward pass has used them, and not when they were only read.
            self._num_backwards = steps.num_backwards
            if self._is_pass_new:
                self._num_ahead = max(0, self._num_taken - self._plan.micro_batches_per_step)
                self._is_pass_new = False
            count.num_micro_batches += self._num_taken
            if self._counts_batches:
                count.num_samples += self._num_samples_taken
            self._num_taken, self._num_samples_taken = 0, 0.0
        num_updates = steps.num_updates
        if num_updates == self._num_seen:
            return
        count.num_steps += num_updates - self._num_seen
        if not self._counts_batches:
            count.num_samples += (self._plan.samples_per_step or 0.0) * (num_updates - self._num_seen)
        if not self._plan.has_loader:
            count.num_micro_batches += num_updates - self._num_seen
        self._num_seen = num_updates
        if count.num_micro_batches >= self._block_micro_batches:
            count.num_skipped_steps = self._steps.num_skipped - self._num_seen_skips
            self._num_seen_skips = self._steps.num_skipped
            self._num_samples_done += count.num_samples
            self._waited_s += count.wait_s
            self._recorder.end_block()
            self._at_block_end(self.phase)
            self._agreement.done(self._steps.num_steps, num_samples=self._num_samples_done, wait_s=self._waited_s)
            self._after_step(is_block_end=True)
        else:
            self._recorder.end_step()
            if self._agreement.is_shared:
                # Blocks of other ranks end elsewhere: what rank 0 has decided is looked for after every step.
                self._after_step(is_block_end=False)

    def pass_begins(self) -> None:
        """The script begins to iterate anew: batches of the pass before that it only read do not count.

        Whoever leaves an epoch by counting its batches never comes to its end: it ends here.
        """
        self.arrive()
        self._num_taken, self._num_samples_taken = 0, 0.0
        if not self._is_between_epochs:
            self._leave_what_is_ahead()
            self.epoch_ended()
        self._is_between_epochs, self._is_pass_new, self._num_ahead = False, True, 0

    def _leave_what_is_ahead(self) -> None:
        """Takes back batches that were counted when they were taken ahead, and that no step will ever use."""
        count = self._recorder.count
        count.num_micro_batches -= self._num_ahead
        if self._counts_batches:
            count.num_samples -= self._num_ahead * self._latest_num_samples

    def blocks(self) -> tuple[Block, ...]:
        """All blocks in order; waits for the device."""
        return self._recorder.finish()

    def epoch_ended(self) -> None:
        """An epoch ended in spite of all.

        The first time the block that holds its end is dropped, and the queue fills anew. Where epochs are so short
        that the next end comes before enough was measured, ends are a part of training like any other, and stay in.
        """
        if self.phase not in (Phase.RAMP, Phase.WINDOW):
            return
        self._is_between_epochs = True
        self.num_epoch_ends += 1
        if self.num_epoch_ends == 1:
            self._enter(Phase.RAMP)

    def _enter(self, phase: Phase) -> None:
        self._recorder.begin(phase)
        self.phase = phase
        self.uses_token = self._plan.has_loader and phase in (Phase.WARMUP, Phase.COMPUTE)
        self._block_micro_batches = 1
        self._num_seen = self._entered_step = self._steps.num_updates
        self._num_seen_skips = self._steps.num_skipped
        self._phase_began = time.monotonic()
        self.entered_at.setdefault(phase, self._phase_began)

    def _after_step(self, *, is_block_end: bool) -> None:
        """Changes the phase where it is time; rank 0 decides at the end of its blocks."""
        if self.phase is Phase.WARMUP:
            if self._changes(Mark.COMPUTE, is_block_end and self._is_warm()):
                self._leave_warm_up()
        elif self.phase is Phase.COMPUTE:
            if self._changes(Mark.OPEN, is_block_end and self._has_ceiling()):
                self._leave_compute()
        elif self.phase is Phase.RAMP:
            if self._changes(Mark.WINDOW, is_block_end and self._is_full()):
                self._enter_window()
        elif self.phase is Phase.RESTART:
            if is_block_end and self._num_restart_left > 0:
                self._block_micro_batches, self._num_restart_left = self._num_restart_left, 0
            elif is_block_end:
                self._end()
        elif self.phase is Phase.OBSERVED:
            if self._changes(Mark.OBSERVED, is_block_end and self._watcher is not None and self._watcher.stepped()):
                self._finish(self._reason)
        else:
            reason = None
            if is_block_end:
                reason = decide(self._recorder.blocks(Phase.WINDOW), self._plan.rule, self._incumbent)
            if reason is StopReason.CONVERGED:
                self._agreement.tell(Mark.CONVERGED)
            if reason not in (None, StopReason.RACED_OUT) and self._is_restart_of_use():
                self._agreement.tell(Mark.RESTART)
            if self._changes(Mark.STOP, reason is not None):
                is_converged = self._agreement.is_told(Mark.CONVERGED)
                self._reason = StopReason.CONVERGED if is_converged else reason or StopReason.TIME_LIMIT
                self._leave_window()

    def _is_restart_of_use(self) -> bool:
        """Whether the cost of an epoch's start is worth a look; rank 0 decides for all."""
        plan, blocks = self._plan, self._recorder.blocks(Phase.WINDOW)
        if self._epochs is None or self.num_epoch_ends > 1 or not blocks:
            return False
        return is_worth_restarting(
            epoch_micro_batches=plan.epoch_micro_batches,
            micro_step_s=sum(b.duration_s for b in blocks) / sum(b.num_micro_batches for b in blocks),
            first_batch_s=plan.first_batch_s,
            num_workers=plan.num_workers,
            num_queued=plan.num_queued,
            limit_s=plan.rule.max_window_s,
        )

    def _leave_window(self) -> None:
        """Begins an epoch on purpose, once the window is over, or ends the trial."""
        is_wanted = self._agreement.is_told(Mark.RESTART)
        if is_wanted:
            self.entered_at[Phase.RESTART] = time.monotonic()  # what the loader has ready is taken out before its clock
        self.epoch_end_s = self._epochs.end_epoch() if is_wanted and self._epochs is not None else None
        if self._epochs is None or self.epoch_end_s is None:
            self._end()
            return
        self._enter(Phase.RESTART)
        self._epochs.begin_epoch()
        num_watched = restart_micro_batches(self._plan.num_workers, self._plan.micro_batches_per_step)
        # The first step is a block of its own: it tells how long before the last worker the first one began.
        self._num_restart_left = num_watched - self._plan.micro_batches_per_step

    def _end(self) -> None:
        """All is measured: ends the trial, or lets it be looked at."""
        if self._watcher is None:
            self._finish(self._reason)
            return
        self._enter(Phase.OBSERVED)
        self._watcher.begin()

    def _changes(self, mark: Mark, wanted: bool) -> bool:
        return self._agreement.reached(mark, wanted=wanted, num_steps=self._num_seen, since=self._entered_step)

    @property
    def _incumbent(self) -> float | None:
        """The rate to beat; ranks do not race, since one does not know the others' rates."""
        return None if self._agreement.is_shared else self._plan.incumbent_samples_per_second

    def _is_warm(self) -> bool:
        blocks = self._recorder.blocks(Phase.WARMUP)
        if len(blocks) < MIN_WARMUP_STEPS:
            return False
        elapsed_s = time.monotonic() - self._phase_began
        if self._has_taken(WARM_UP_SHARE):
            return True
        is_long = elapsed_s >= STEADY_WARMUP_S and len(blocks) >= STEADY_WARMUP_STEPS
        return is_long or elapsed_s >= MAX_WARMUP_S or warmed_up([_busy_s(b) for b in blocks[-LAST_WARMUP_STEPS:]])

    def _has_taken(self, share: float) -> bool:
        """Whether that share of the steps that the script makes is spent."""
        limit = self._plan.script_steps
        return limit is not None and self._steps.num_updates >= share * limit

    def _leave_warm_up(self) -> None:
        if not self._plan.has_loader:
            self._enter(Phase.RAMP)
            return
        self._recorder.finish()
        last = self._recorder.blocks(Phase.WARMUP)[-LAST_WARMUP_STEPS:]
        self._enter(Phase.COMPUTE)
        micro_step_s = sum(map(_busy_s, last)) / sum(block.num_micro_batches for block in last)
        self._block_micro_batches = block_size(0, self._plan.micro_batches_per_step, micro_step_s, COMPUTE_BLOCK_S)

    def _has_ceiling(self) -> bool:
        elapsed_s = time.monotonic() - self._phase_began
        num_blocks = len(self._recorder.blocks(Phase.COMPUTE))
        is_enough = num_blocks >= MIN_COMPUTE_BLOCKS and elapsed_s >= MIN_COMPUTE_S
        return is_enough or elapsed_s >= MAX_COMPUTE_S or self._has_taken(EARLY_SHARE)

    def _leave_compute(self) -> None:
        self._recorder.finish()
        blocks = self._recorder.blocks(Phase.COMPUTE)
        if blocks:
            self.compute_samples_per_second = sum(b.num_samples for b in blocks) / sum(_busy_s(b) for b in blocks)
            fastest = max(block.num_samples / _busy_s(block) for block in blocks)
            is_slow = self._incumbent is not None and fastest < self._incumbent * self._plan.rule.race_margin
            if is_slow or self._plan.is_compute_only:
                self._finish(StopReason.RACED_OUT)
                return
        self._is_queue_empty = self._open_gate()
        self._enter(Phase.RAMP)

    def _is_full(self) -> bool:
        num_micro_batches = sum(block.num_micro_batches for block in self._recorder.blocks(Phase.RAMP))
        num_workers = self._plan.num_workers
        if self._is_queue_empty:
            return num_micro_batches >= max(1, num_workers)
        return num_micro_batches >= DRAIN_QUEUES * max(self._plan.num_queued, LEAST_QUEUED) + num_workers

    def _enter_window(self) -> None:
        # The whole ramp: its first batch takes a worker's full time and the others then come at once, so that its last
        # ones alone look like a loader that is many times as fast. On another rank than the first the decision may come
        # before a block has ended here.
        self._recorder.finish()
        last = self._recorder.blocks(Phase.RAMP) or self._recorder.blocks(Phase.WARMUP)[-LAST_WARMUP_STEPS:]
        micro_step_s = sum(block.duration_s for block in last) / sum(block.num_micro_batches for block in last)
        self._enter(Phase.WINDOW)
        self._block_micro_batches = block_size(
            self._plan.num_workers, self._plan.micro_batches_per_step, micro_step_s, self._plan.rule.min_block_s
        )


def _busy_s(block: Block) -> float:
    """Time of a block outside `next()`: copying the cached batch is not training."""
    return max(block.duration_s - block.data_wait_s, 1e-9)
