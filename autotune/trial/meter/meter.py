"""Measures a trial: runs through the phases, divides steps into blocks, and ends when enough is known.

A micro-step runs from one `next()` of the training loader to the next, or from one optimizer step to the next in a
script without a loader. Blocks end and phases change only when no gradients are pending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from autotune.measure.block import Block, Phase
from autotune.measure.checkpoints import without_checkpoints
from autotune.measure.epoch import restart_micro_batches
from autotune.measure.window_stopping import LEAST_BLOCKS, LONG_BLOCK_S, StopReason, block_size, decide, may_end
from autotune.protocol.progress_marks import Mark
from autotune.trial.meter import phase_rules
from autotune.trial.meter.block_recorder import Recorder
from autotune.trial.meter.build_log import Built
from autotune.trial.meter.counters import Counters, StepCounts
from autotune.trial.meter.host_clock import Clock
from autotune.trial.meter.measuring_plan import Epochs, Plan, Watcher
from autotune.trial.meter.page_locked import PageLockedPool
from autotune.trial.meter.phase_rules import COMPUTE_BLOCK_S, LAST_WARMUP_STEPS
from autotune.trial.meter.rank_sync import MAX_STEPS_AHEAD, Agreement

MEASURED = (Phase.COMPUTE, Phase.RAMP, Phase.WINDOW)
"""Phases with blocks whose rate counts."""
MOST_LEFT_OUT = 4.0
"""Time left out of a measurement after which a window with the fewest blocks ends, as a multiple of its time limit."""
WAIT_SHARE = 0.02
"""Share of a block spent waiting for batches from which the loader's queues count as used up."""
MOST_BUILDS = 3
"""Blocks of a window to leave out because torch's compiler built a graph within; more are how the script trains."""


class Meter:
    """Counts micro-steps into blocks, phase after phase; built after the first optimizer step.

    Args:
        plan: Facts and limits of the trial.
        steps: Counts of backward passes and steps.
        clock: The clock of the training device.
        agreement: Decides on phase changes for all ranks together.
        open_gate: Lets the loader's workers build; returns True when the workers had built nothing before.
        finish: Ends the trial; returns in tests alone.
        measured: Called first after the window when a restart of the epoch follows.
        at_phase: Called at the beginning of each phase.
        at_block_end: Called when a block has ended on the host.
        built: Gives the log of the loader's workers as of now, or None when the workers write no log.
        num_page_locked: Gives the number of blocks of page-locked memory allocated so far; None where torch does not
            tell.
        num_graphs: Gives the number of graphs built by torch's compiler so far; None in a torch without a count.
        num_searches: Gives the number of cuDNN's searches for kernels so far, of sizes that come again.
        num_saves: Gives the number of calls of torch.save so far.
        epochs: Begins a new epoch after the window; None to measure no restart.
        watcher: Observes the loop after the measurement; None to measure the rate alone.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        steps: StepCounts,
        clock: Clock,
        agreement: Agreement,
        open_gate: Callable[[], bool],
        finish: Callable[[StopReason], None],
        measured: Callable[[StopReason], None] = lambda reason: None,
        at_phase: Callable[[Phase], None] = lambda phase: None,
        at_block_end: Callable[[Phase], None] = lambda phase: None,
        built: Callable[[], Built | None] = lambda: None,
        num_page_locked: Callable[[], int | None] = lambda: None,
        num_graphs: Callable[[], int | None] = lambda: None,
        num_searches: Callable[[], int] = lambda: 0,
        num_saves: Callable[[], int] = lambda: 0,
        epochs: Epochs | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.compute_samples_per_second: float | None = None
        self.entered_at: dict[Phase, float] = {}
        """Monotonic time of each phase's beginning, for the accounting of the trial's seconds."""
        self.phase = Phase.WARMUP
        self.uses_cached_batch = plan.has_cached_batch
        """Whether the script now gets the cached batch."""
        self._plan, self._steps, self._agreement = plan, steps, agreement
        self._open_gate, self._finish, self._measured = open_gate, finish, measured
        self._at_phase, self._at_block_end = at_phase, at_block_end
        self._epochs, self._watcher = epochs, watcher
        self._reason = StopReason.TIME_LIMIT
        """The reason for the window's end."""
        self._ask_saves, self._num_saves = num_saves, num_saves()
        self._ask_searches, self._num_searches = num_searches, num_searches()
        self.left_out_s = 0.0
        """Seconds of blocks left out: cuDNN searched kernels within, or their batches were built during a search."""
        self._num_stocked = 0
        """Batches that the workers may have built during a search, and that the script has not used yet."""
        self.epoch_end_s: float | None = None
        """Seconds of the epoch's end before a measured restart; None without a restart."""
        self._built = built
        self._recorder = Recorder(clock, built, max_steps_ahead=MAX_STEPS_AHEAD if agreement.is_shared else None)
        self._page_locked = PageLockedPool(num_page_locked)
        self._ask_graphs, self._num_graphs, self._num_builds = num_graphs, num_graphs(), 0
        self._is_queue_empty = plan.has_loader or plan.num_queued == 0
        self.num_epoch_ends = 0
        """Ends of epochs among the real batches; the second and later ends are a part of the window."""
        self._is_between_epochs = False
        self._num_restart_left = 0
        """Micro-batches of the restart after its first block."""
        self.counters = Counters(
            steps,
            has_loader=plan.has_loader,
            samples_per_step=plan.samples_per_step,
            micro_batches_per_step=plan.micro_batches_per_step,
            end_step=self._end_step_of_rank if agreement.is_shared else None,
            end_block=self._end_block,
        )
        """Totals of batches, samples and steps; the batch source notes each delivered batch here."""
        self._entered_step = steps.num_updates
        self._num_samples_done, self._waited_s = 0.0, 0.0
        """Samples and seconds of waiting in all ended blocks."""
        self._after_step_of: dict[Phase, Callable[[bool], None]] = {
            Phase.WARMUP: self._after_warm_up,
            Phase.COMPUTE: self._after_compute,
            Phase.RAMP: self._after_ramp,
            Phase.WINDOW: self._after_window,
            Phase.RESTART: self._after_restart,
            Phase.OBSERVED: self._after_observed,
        }
        """Functions that may change the phase after a step; the argument is True at the end of a block, where rank 0
        decides."""
        self._enter(Phase.WARMUP)

    def arrive(self) -> None:
        """Notes the end of a micro-step; may change the phase or end the trial."""
        self.counters.arrive()

    def begin_delivery(self) -> Any:
        """A mark for `delivered`, before a batch is handed out outside of the window."""
        return self._recorder.mark()

    def delivered(self, num_samples: float, began: Any) -> None:
        """Notes a batch handed out since the mark `began`; only time in which the device was idle is a wait."""
        self.counters.delivered(num_samples, 0.0)
        self._recorder.delivered(began)

    def handed_out(self, began: Any) -> None:
        """Notes a batch of a loader beside the training loader; its samples count for no rate."""
        self._recorder.delivered(began)

    def foreign_delivered(self, num_samples: float, began: Any) -> None:
        """Notes a batch of a loader that is no DataLoader as `delivered` does; micro-steps stay optimizer steps."""
        self.counters.foreign_batch(num_samples, 0.0)
        self._recorder.delivered(began)

    def idle_s(self) -> float:
        """Seconds lost so far to the handing out of batches noted by `delivered` and `foreign_delivered`."""
        return self._recorder.idle_s()

    def pass_begins(self) -> None:
        """Notes that the script iterates anew; unused batches of the last pass do not count.

        A script that counts batches may leave a pass before the loader's end. The epoch then ends here.
        """
        self.counters.arrive()
        is_read_ahead = self._steps.thread != threading.get_ident()
        # After an epoch begun by the meter the script is still in its old pass, and uses all batches.
        is_left = not self._is_between_epochs and self.phase is not Phase.RESTART
        self.counters.begin_pass(is_left=is_left, is_read_ahead=is_read_ahead)
        if not self._is_between_epochs:
            self.epoch_ended()
        self._is_between_epochs = False

    def blocks(self) -> tuple[Block, ...]:
        """All blocks in order; waits for the device."""
        return self._recorder.finish()

    def epoch_ended(self) -> None:
        """Notes that an epoch ended during the measurement.

        At the first end the running block is dropped, and the ramp begins anew. With epochs too short for a whole
        measurement, later ends stay in the window as a part of training.
        """
        if self.phase not in (Phase.RAMP, Phase.WINDOW):
            return
        self._is_between_epochs = True
        self.num_epoch_ends += 1
        if self.num_epoch_ends == 1:
            self._enter(Phase.RAMP)

    def _end_step_of_rank(self) -> None:
        """Notes a step within a block, and reads rank 0's decision, since blocks of other ranks end at other steps."""
        self._recorder.end_step()
        self._after_step_of[self.phase](False)

    def _end_block(self) -> None:
        if self.phase is Phase.WINDOW and self._has_built_a_graph():
            self._enter(Phase.RAMP)
            return
        num_searches = self._num_searches
        if self._is_left_out():
            self._leave_out_block(has_searched=self._num_searches != num_searches)
            return
        count = self._recorder.count
        self.counters.fill(count)
        before, self._num_saves = self._num_saves, self._ask_saves()
        count.num_saves = self._num_saves - before
        self._num_samples_done += count.num_samples
        self._waited_s += count.wait_s
        self._recorder.end_block()
        self._block_began = time.monotonic()
        is_long = self._recorder.num_unfinished and self._recorder.latest_block_s >= LONG_BLOCK_S
        if is_long and not self._agreement.is_shared:
            self._wait_if_worth_it()
        self._at_block_end(self.phase)
        self._agreement.done(self._steps.num_steps, num_samples=self._num_samples_done, wait_s=self._waited_s)
        self._after_step_of[self.phase](True)

    def _has_built_a_graph(self) -> bool:
        """Whether the running block is to be dropped, because torch's compiler built a graph since the ramp began.

        A real run builds each graph once. Ranks that compute together, and scripts that soon end, keep the block.
        """
        is_open = self._num_builds < MOST_BUILDS and not self._agreement.is_shared and self._plan.script_steps is None
        has_built = is_open and (self._ask_graphs() or 0) != (self._num_graphs or 0)
        self._num_builds += has_built
        return has_built

    def _is_left_out(self) -> bool:
        """Whether the running block is to be dropped, because cuDNN searched kernels for a new size of inputs within.

        A real run searches once for each size. The workers fill their queues during a search of seconds, and a slow
        loader would look fast. So the blocks up to the end of the queues, or up to a wait, are dropped too. Ranks that
        compute together, and scripts that soon end, keep all blocks.
        """
        before, self._num_searches = self._num_searches, self._ask_searches()
        if self.phase not in MEASURED or self._agreement.is_shared or self._plan.script_steps is not None:
            return False
        if self._num_searches != before:
            self._num_stocked = 0 if self.uses_cached_batch else self._plan.num_queued
            return True
        return self._num_stocked > 0

    def _leave_out_block(self, *, has_searched: bool) -> None:
        """Drops the running block, and begins a block of the same length."""
        count, block_s = self._recorder.count, time.monotonic() - self._block_began
        self.counters.fill(count)
        if not has_searched:
            has_waited = count.wait_s >= WAIT_SHARE * block_s
            self._num_stocked = 0 if has_waited else self._num_stocked - count.num_micro_batches
        self.left_out_s += block_s
        self._recorder.begin(self.phase)
        self._num_saves = self._ask_saves()
        self._block_began = time.monotonic()
        self._at_block_end(Phase.WARMUP)  # What the allocator did meanwhile says nothing of the blocks that count.

    def _wait_if_worth_it(self) -> None:
        """Lets the device finish a long block where the phase may end with the block."""
        recorder = self._recorder
        known, num_unfinished = recorder.blocks(self.phase), recorder.num_unfinished
        if phase_rules.is_worth_a_wait(self.phase, known, num_unfinished, recorder.latest_block_s, self._plan):
            recorder.wait()

    def _enter(self, phase: Phase, num_micro_batches: int = 1) -> None:
        """Begins a phase with blocks of `num_micro_batches` micro-batches."""
        self._recorder.begin(phase)
        self.phase, self._num_saves = phase, self._ask_saves()
        self.uses_cached_batch = self._plan.has_cached_batch and phase in (Phase.WARMUP, Phase.COMPUTE)
        self.counters.begin_block(num_micro_batches)
        self._entered_step = self.counters.num_updates
        self._phase_began = self._block_began = time.monotonic()
        self._num_searches = self._ask_searches()
        if phase is Phase.RAMP:
            self._page_locked.begin()
            self._num_graphs = self._ask_graphs()
        self.entered_at.setdefault(phase, self._phase_began)
        self._at_phase(phase)

    def _after_warm_up(self, is_block_end: bool) -> None:
        if self._changes(Mark.COMPUTE, is_block_end and self._is_over()):
            self._leave_warm_up()

    def _after_compute(self, is_block_end: bool) -> None:
        is_over = is_block_end and self._is_over()
        if is_over and self._is_open(Mark.OPEN):
            self._recorder.finish()
            if phase_rules.is_compute_too_slow(self._recorder.blocks(Phase.COMPUTE), self._plan):
                self._agreement.announce(Mark.RACED)
        if self._changes(Mark.OPEN, is_over):
            self._leave_compute()

    def _after_ramp(self, is_block_end: bool) -> None:
        if self._changes(Mark.WINDOW, is_block_end and self._is_over()):
            self._enter_window()

    def _after_window(self, is_block_end: bool) -> None:
        recorder, phase = self._recorder, self.phase
        is_over = may_end(recorder.num_blocks[phase], recorder.elapsed_s[phase], self._plan.rule)
        is_look = is_block_end and (is_over or self._is_out_of_patience)
        if self._changes(Mark.STOP, is_look and self._is_open(Mark.STOP) and self._decides()):
            self._leave_window()

    def _after_restart(self, is_block_end: bool) -> None:
        if is_block_end and self._num_restart_left > 0:
            self.counters.begin_block(self._num_restart_left)
            self._num_restart_left = 0
        elif is_block_end:
            self._end()

    def _after_observed(self, is_block_end: bool) -> None:
        if self._changes(Mark.OBSERVED, is_block_end and self._watcher is not None and self._watcher.stepped()):
            self._finish(self._reason)

    @property
    def _is_out_of_patience(self) -> bool:
        """Whether the window ends with the fewest blocks, because MOST_LEFT_OUT times its limit was left out."""
        has_enough = self._recorder.num_blocks[Phase.WINDOW] >= LEAST_BLOCKS
        return has_enough and self.left_out_s > MOST_LEFT_OUT * self._plan.rule.max_window_s

    def _decides(self) -> bool:
        """Whether the window ends now; announces the reason to all ranks."""
        window, incumbent = self._recorder.blocks(Phase.WINDOW), self._plan.incumbent_samples_per_second
        (counted,) = without_checkpoints([self._recorder.all_blocks()])
        reason = decide(window, self._plan.rule, incumbent, counted)
        if reason is None and self._is_out_of_patience:
            reason = StopReason.TIME_LIMIT
        if reason is StopReason.CONVERGED:
            self._agreement.announce(Mark.CONVERGED)
        if reason is StopReason.RACED_OUT:
            self._agreement.announce(Mark.RACED)
        elif reason is not None and self._is_restart_of_use():
            self._agreement.announce(Mark.RESTART)
        return reason is not None

    def _is_restart_of_use(self) -> bool:
        """Whether a restart of the epoch is worth measuring; rank 0 decides for all ranks."""
        if self._epochs is None or self.num_epoch_ends > 1:
            return False
        return phase_rules.is_restart_of_use(self._recorder.blocks(Phase.WINDOW), self._plan, self._num_watched)

    @property
    def _num_watched(self) -> int:
        """Micro-batches observed after a restart; the same on all ranks, whose epochs may differ in length."""
        plan, is_shared = self._plan, self._agreement.is_shared
        epoch = None if is_shared else plan.epoch_micro_batches
        return restart_micro_batches(plan.num_workers, plan.micro_batches_per_step, epoch_micro_batches=epoch)

    def _leave_window(self) -> None:
        """After the window: measures a restart of the epoch, or ends the trial."""
        if self._agreement.is_announced(Mark.CONVERGED):
            self._reason = StopReason.CONVERGED
        elif self._agreement.is_announced(Mark.RACED):
            self._reason = StopReason.RACED_OUT
        is_wanted = self._agreement.is_announced(Mark.RESTART)
        if is_wanted:
            self._measured(self._reason)
            self.entered_at[Phase.RESTART] = time.monotonic()  # ready batches are taken before the phase's own clock
        num_watched = self._num_watched
        self.epoch_end_s = self._epochs.end_epoch(num_watched) if is_wanted and self._epochs is not None else None
        if self._epochs is None or self.epoch_end_s is None:
            self._end()
            return
        self._enter(Phase.RESTART)
        self._epochs.begin_epoch()
        # The first step is a separate block, and tells how long before the last worker the first worker began.
        self._num_restart_left = num_watched - self._plan.micro_batches_per_step

    def _end(self) -> None:
        """Ends the measurement: finishes the trial, or begins the observation."""
        if self._watcher is None:
            self._finish(self._reason)
            return
        self._enter(Phase.OBSERVED)
        self._watcher.begin()

    def _changes(self, mark: Mark, wanted: bool) -> bool:
        return self._agreement.reached(
            mark, wanted=wanted, num_steps=self.counters.num_updates, since=self._entered_step
        )

    def _is_open(self, mark: Mark) -> bool:
        """Whether the step of the change is still open; a later announcement might reach other ranks too late."""
        return not self._agreement.is_agreed(mark, since=self._entered_step)

    def _is_over(self) -> bool:
        """Whether the running phase before the window is over."""
        blocks, plan = self._recorder.blocks(self.phase), self._plan
        elapsed_s = time.monotonic() - self._phase_began
        if self.phase is Phase.WARMUP:
            return phase_rules.is_warm(blocks, elapsed_s, plan, self._steps.num_updates)
        if self.phase is Phase.COMPUTE:
            return phase_rules.has_ceiling(len(blocks), elapsed_s, plan, self._steps.num_updates)
        num_unchanged = self._page_locked.num_unchanged(sum(block.num_micro_batches for block in blocks))
        return phase_rules.is_steady(
            blocks,
            plan,
            self._steps.num_updates,
            is_queue_empty=self._is_queue_empty,
            num_unchanged=num_unchanged,
        )

    def _leave_warm_up(self) -> None:
        plan = self._plan
        if not plan.has_cached_batch:
            self._enter(Phase.RAMP)
            return
        if plan.batches_vary and not plan.is_compute_only:
            self._begin_real_batches()
            return
        self._recorder.finish()
        last = self._recorder.blocks(Phase.WARMUP)[-LAST_WARMUP_STEPS:]
        step_s = phase_rules.busy_micro_step_s(last)
        self._enter(Phase.COMPUTE, block_size(0, plan.micro_batches_per_step, step_s, COMPUTE_BLOCK_S))

    def _leave_compute(self) -> None:
        self._recorder.finish()
        self.compute_samples_per_second = phase_rules.ceiling(self._recorder.blocks(Phase.COMPUTE))
        if self._agreement.is_announced(Mark.RACED) or self._plan.is_compute_only:
            self._finish(StopReason.RACED_OUT)
            return
        self._begin_real_batches()

    def _begin_real_batches(self) -> None:
        if self._plan.has_loader:
            self._is_queue_empty = self._open_gate()
        self._enter(Phase.RAMP)

    def _enter_window(self) -> None:
        # The whole ramp counts: the first batch takes a worker's full time and the next batches come at once, so the
        # last steps alone would suggest a far faster loader. On ranks above 0 the decision may come before the first
        # block of the ramp has ended.
        self._recorder.finish()
        plan, ramp = self._plan, self._recorder.blocks(Phase.RAMP)
        step_s = phase_rules.micro_step_s(ramp or self._recorder.blocks(Phase.WARMUP)[-LAST_WARMUP_STEPS:])
        has_rounds = not (self._is_queue_empty and phase_rules.needs_no_rounds(ramp, self._built(), plan))
        num_workers = plan.num_workers if has_rounds else 0
        self._enter(Phase.WINDOW, block_size(num_workers, plan.micro_batches_per_step, step_s, plan.rule.min_block_s))
