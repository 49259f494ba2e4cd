"""The meter: phases of a trial, its blocks, and when it has seen enough.

A micro-step runs from one `next()` of the training loader to the next; where the script has no loader, from one
optimizer step to the next. Blocks end and phases change only where no gradients are pending.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from autotune.measure.block import Block, Phase
from autotune.measure.stopping import StopReason, WindowRule, block_size, decide, warmed_up
from autotune.trial.clock import Clock
from autotune.trial.ranks import Agreement, Mark
from autotune.trial.recorder import Recorder
from autotune.trial.steps import Steps

MIN_WARMUP_STEPS = 3
MAX_WARMUP_S = 10.0
"""A warm-up that does not settle ends here: the job is unsteady by nature."""
STEADY_WARMUP_S = 1.5
STEADY_WARMUP_STEPS = 10
"""After so long and so many steps nothing is left to warm; the noise of a shared host alone keeps it from settling."""
MIN_COMPUTE_STEPS = 5
MIN_COMPUTE_S = 0.4
MAX_COMPUTE_S = 3.0
DRAIN_QUEUES = 2
"""Without a gate the queue is drained this many times over before the clock starts, and the result is `primed`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What the meter must know of the trial."""

    rule: WindowRule
    has_loader: bool
    num_workers: int
    num_queued: int
    """Batches that the loader may hold ready: workers times prefetch."""
    is_gated: bool
    micro_batches_per_step: int
    incumbent_samples_per_second: float | None
    samples_per_step: float | None
    """Samples of one optimizer step, where the user declared them or nobody can count them."""


class Meter:
    """Counts micro-steps into blocks, one phase after the other."""

    def __init__(
        self,
        plan: Plan,
        *,
        steps: Steps,
        clock: Clock,
        agreement: Agreement,
        open_gate: Callable[[], None],
        finish: Callable[[StopReason], None],
    ) -> None:
        self.compute_samples_per_second: float | None = None
        self.entered_at: dict[Phase, float] = {}
        """Monotonic time at which each phase began, for the accounting."""
        self._plan, self._steps, self._agreement = plan, steps, agreement
        self._open_gate, self._finish = open_gate, finish
        self._recorder = Recorder(clock)
        self._num_seen = 0
        self._num_seen_skips = 0
        self._block_micro_batches = 1
        self._phase_began = 0.0

    @property
    def phase(self) -> Phase | None:
        """The running phase; None before the first micro-step."""
        return self._recorder.phase if self.entered_at else None

    @property
    def uses_token(self) -> bool:
        """Whether the script is given the cached batch now."""
        return self._plan.has_loader and self.phase in (Phase.WARMUP, Phase.COMPUTE)

    def delivered(self, num_samples: float, wait_s: float) -> None:
        """Notes a batch that the script was given, and how long it waited for it."""
        if self._plan.samples_per_step is None:
            self._recorder.count.num_samples += num_samples
        self._recorder.count.wait_s += wait_s

    def arrive(self) -> None:
        """A micro-step ended, or the first begins; may change the phase, and may end the trial."""
        if not self.entered_at:
            self._num_seen = self._num_updates
            self._enter(Phase.WARMUP)
            return
        count = self._recorder.count
        count.num_micro_batches += 1
        num_updates = self._num_updates
        if num_updates == self._num_seen:
            return
        count.num_steps += num_updates - self._num_seen
        if self._plan.samples_per_step is not None:
            count.num_samples += self._plan.samples_per_step * (num_updates - self._num_seen)
        count.num_skipped_steps += self._steps.num_skipped - self._num_seen_skips
        self._num_seen, self._num_seen_skips = num_updates, self._steps.num_skipped
        self._agreement.done(self._steps.num_steps)
        if count.num_micro_batches >= self._block_micro_batches:
            self._recorder.end_block()
            self._after_block()

    def blocks(self) -> tuple[Block, ...]:
        """All blocks in order; waits for the device."""
        return self._recorder.finish()

    def epoch_ended(self) -> None:
        """An epoch ended in spite of all: the block that holds its end is dropped, and the queue fills anew."""
        if self.phase in (Phase.RAMP, Phase.WINDOW):
            self._num_seen = self._num_updates
            self._agreement.forget(Mark.WINDOW)
            self._enter(Phase.RAMP)

    @property
    def _num_updates(self) -> int:
        return self._steps.num_steps + self._steps.num_skipped

    def _enter(self, phase: Phase) -> None:
        self._recorder.begin(phase)
        self._block_micro_batches = 1
        self._phase_began = time.monotonic()
        self.entered_at.setdefault(phase, self._phase_began)

    def _after_block(self) -> None:
        if self.phase is Phase.WARMUP and self._changes(Mark.COMPUTE, self._is_warm()):
            self._enter(Phase.COMPUTE if self._plan.has_loader else Phase.RAMP)
        elif self.phase is Phase.COMPUTE and self._changes(Mark.OPEN, self._has_ceiling()):
            self._leave_compute()
        elif self.phase is Phase.RAMP and self._changes(Mark.WINDOW, self._is_full()):
            self._enter_window()
        elif self.phase is Phase.WINDOW:
            reason = decide(self._recorder.blocks(Phase.WINDOW), self._plan.rule, self._incumbent)
            if self._changes(Mark.STOP, reason is not None):
                self._finish(reason or StopReason.TIME_LIMIT)

    def _changes(self, mark: Mark, wanted: bool) -> bool:
        return self._agreement.reached(mark, wanted=wanted, num_steps=self._num_updates)

    @property
    def _incumbent(self) -> float | None:
        """The rate to beat; ranks do not race, since one does not know the others' rates."""
        return None if self._agreement.is_shared else self._plan.incumbent_samples_per_second

    def _is_warm(self) -> bool:
        step_s = [_busy_s(block) for block in self._recorder.blocks(Phase.WARMUP)]
        if len(step_s) < MIN_WARMUP_STEPS:
            return False
        elapsed_s = time.monotonic() - self._phase_began
        is_long = elapsed_s >= STEADY_WARMUP_S and len(step_s) >= STEADY_WARMUP_STEPS
        return warmed_up(step_s) or is_long or elapsed_s >= MAX_WARMUP_S

    def _has_ceiling(self) -> bool:
        elapsed_s = time.monotonic() - self._phase_began
        num_steps = len(self._recorder.blocks(Phase.COMPUTE))
        return (num_steps >= MIN_COMPUTE_STEPS and elapsed_s >= MIN_COMPUTE_S) or elapsed_s >= MAX_COMPUTE_S

    def _leave_compute(self) -> None:
        self._recorder.finish()
        blocks = self._recorder.blocks(Phase.COMPUTE)
        if blocks:
            self.compute_samples_per_second = sum(b.num_samples for b in blocks) / sum(_busy_s(b) for b in blocks)
            fastest = max(block.num_samples / _busy_s(block) for block in blocks)
            if self._incumbent is not None and fastest < self._incumbent * self._plan.rule.race_margin:
                self._finish(StopReason.RACED_OUT)
                return
        self._open_gate()
        self._enter(Phase.RAMP)

    def _is_full(self) -> bool:
        num_micro_batches = sum(block.num_micro_batches for block in self._recorder.blocks(Phase.RAMP))
        num_workers = self._plan.num_workers
        if self._plan.is_gated or num_workers == 0:
            return num_micro_batches >= max(1, num_workers)
        return num_micro_batches >= DRAIN_QUEUES * self._plan.num_queued + num_workers

    def _enter_window(self) -> None:
        self._recorder.finish()
        last = self._recorder.blocks(Phase.RAMP)[-4:]
        micro_step_s = sum(block.duration_s for block in last) / sum(block.num_micro_batches for block in last)
        self._enter(Phase.WINDOW)
        self._block_micro_batches = block_size(
            self._plan.num_workers, self._plan.micro_batches_per_step, micro_step_s, self._plan.rule.min_block_s
        )


def _busy_s(block: Block) -> float:
    """Time of a block outside `next()`: copying the cached batch is not training."""
    return max(block.duration_s - block.data_wait_s, 1e-9)
