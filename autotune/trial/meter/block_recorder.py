"""Records blocks: marks their ends on the device's clock, and computes durations when the device gets there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from autotune.measure.block import Block, Phase
from autotune.measure.build_times import BuildTimes
from autotune.trial.meter.build_log import Built
from autotune.trial.meter.host_clock import Clock


class Count:
    """The counts of one block; the durations are set once the device has reached the block's end."""

    __slots__ = (
        "build_times",
        "deliveries",
        "duration_s",
        "num_built",
        "num_micro_batches",
        "num_samples",
        "num_saves",
        "num_skipped_steps",
        "num_steps",
        "wait_s",
    )

    def __init__(self) -> None:
        self.num_built: float | None = None
        self.build_times: BuildTimes | None = None
        self.num_steps = 0
        self.num_micro_batches = 0
        self.num_samples = 0.0
        self.num_skipped_steps = 0
        self.num_saves = 0
        self.wait_s = 0.0
        self.duration_s = 0.0
        self.deliveries: list[tuple[Any, Any]] = []
        """Marks around the handing out of each cached batch."""


class Recorder:
    """All blocks of a trial in order, raw, warm-up included.

    Args:
        clock: The clock of the device that trains.
        built: Gives the log of the loader's workers as of now, or None when the workers write no log.
        max_steps_ahead: Most steps that the host may be ahead of the device; None sets no bound.
    """

    def __init__(
        self,
        clock: Clock,
        built: Callable[[], Built | None] = lambda: None,
        *,
        max_steps_ahead: int | None = None,
    ) -> None:
        self.count = Count()
        self.phase = Phase.WARMUP
        self.num_blocks = dict.fromkeys(Phase, 0)
        self.elapsed_s = dict.fromkeys(Phase, 0.0)
        """Number and total seconds of the blocks finished by the device, by phase."""
        self.latest_block_s = 0.0
        """Seconds of the latest block finished by the device, of any phase."""
        self._idle_s_so_far = 0.0
        self._clock, self._mark = clock, clock.mark
        self._built = built
        self._max_steps_ahead = max_steps_ahead
        self._last_built: Built | None = None
        self._pending: deque[Any] = deque()
        """Marks of blocks, and of steps where steps are marked, that the device had not reached at the last check."""
        self._ending: deque[tuple[Any, Count]] = deque()
        """The pending marks that end a block, each with the counts of the block."""
        self._block_mark: Any = None
        """The beginning of the oldest unsettled block."""
        self._step_mark: Any = None
        """The last mark that the device has reached."""
        self._finished: list[tuple[Phase, Count]] = []
        """Counts of finished blocks that are not built yet."""
        self._blocks: list[Block] = []
        self._of_phase: dict[Phase, list[Block]] = {phase: [] for phase in Phase}

    def begin(self, phase: Phase) -> None:
        """Waits for the device, then starts a phase; an unfinished block is dropped."""
        self.finish()
        self.phase = phase
        self.count = Count()
        self._last_built = self._built_in_window()
        self._begin_block(self._mark())

    def mark(self) -> Any:
        """A mark of the clock as of now, for `delivered`."""
        return self._mark()

    def delivered(self, began: Any) -> None:
        """Counts the handing out of a batch since the mark `began` as waiting, as far as the device was idle meanwhile.

        A device that still works on queued steps passes both marks at once, and loses nothing.
        """
        self.count.deliveries.append((began, self._mark()))

    def idle_s(self) -> float:
        """Seconds in which the device was idle while batches were handed out, in all blocks done so far."""
        self._settle()
        return self._idle_s_so_far

    def end_step(self) -> None:
        """Ends a step within a block, and waits for the device when the host is too far ahead.

        Needed only with a bound on the steps ahead: on a GPU the mark of a step takes 0.05 ms of the host or more.
        """
        self._pending.append(self._mark())
        self._settle()
        self._keep_up()

    def end_block(self) -> None:
        """Ends a step and the running block."""
        built = self._built_in_window()
        if built is not None and self._last_built is not None:
            self.count.num_built = built.num - self._last_built.num
            self.count.build_times = built.times.since(self._last_built.times)
        self._last_built = built
        mark = self._mark()
        self._pending.append(mark)
        self._ending.append((mark, self.count))
        self.count = Count()
        self._settle()
        self._keep_up()

    @property
    def num_unfinished(self) -> int:
        """Number of blocks ended by the host and, at the last check, not by the device."""
        return len(self._ending)

    def wait(self) -> None:
        """Waits until the device has finished all blocks ended by the host."""
        if self._ending:
            self._clock.wait(self._ending[-1][0])
            self._settle()

    def blocks(self, phase: Phase) -> Sequence[Block]:
        """Finished blocks of a phase, never copied, because the meter asks at the end of many blocks."""
        self._make_blocks()
        return self._of_phase[phase]

    def all_blocks(self) -> Sequence[Block]:
        """Finished blocks of all phases, in order, never copied."""
        self._make_blocks()
        return self._blocks

    def finish(self) -> tuple[Block, ...]:
        """All blocks; waits for the device."""
        self._clock.finish()
        self._settle()
        self._make_blocks()
        return tuple(self._blocks)

    def _built_in_window(self) -> Built | None:
        """The log of the workers as of now; None outside the window, since blocks may be single steps."""
        return self._built() if self.phase is Phase.WINDOW else None

    def _keep_up(self) -> None:
        if self._max_steps_ahead is not None and len(self._pending) > self._max_steps_ahead:
            self._clock.wait(self._pending[-1 - self._max_steps_ahead])
            self._settle()

    def _settle(self) -> None:
        """Computes the durations up to all reached marks, and releases the marks."""
        clock, pending, ending = self._clock, self._pending, self._ending
        while pending and clock.is_reached(pending[0]):
            mark = pending.popleft()
            if self._step_mark is not self._block_mark:
                clock.release(self._step_mark)
            self._step_mark = mark
            if ending and ending[0][0] is mark:
                self._add(ending.popleft()[1], clock.seconds(self._block_mark, mark))
                clock.release(self._block_mark)
                self._begin_block(mark)

    def _begin_block(self, mark: Any) -> None:
        self._block_mark = self._step_mark = mark

    def _add(self, count: Count, duration_s: float) -> None:
        idle_s = sum(map(self._seconds_of, count.deliveries))
        self._idle_s_so_far += idle_s
        count.wait_s += idle_s
        count.deliveries.clear()
        if count.num_steps and count.num_samples:
            count.duration_s = self.latest_block_s = max(duration_s, 1e-9)
            self._finished.append((self.phase, count))
            self.num_blocks[self.phase] += 1
            self.elapsed_s[self.phase] += count.duration_s

    def _seconds_of(self, delivery: tuple[Any, Any]) -> float:
        """Seconds on the device's clock between the marks of a delivery; the device has passed the block's end."""
        began, ended = delivery
        self._clock.wait(ended)  # at once, unless the script asked for the batch on a stream of its own
        seconds = self._clock.seconds(began, ended)
        self._clock.release(began)
        self._clock.release(ended)
        return seconds

    def _make_blocks(self) -> None:
        """Builds blocks on demand, not in the window's steps: building takes longer than the rest of a block's end."""
        for phase, count in self._finished:
            block = Block(
                phase=phase,
                num_steps=count.num_steps,
                num_micro_batches=max(1, count.num_micro_batches),
                num_samples=count.num_samples,
                duration_s=count.duration_s,
                data_wait_s=count.wait_s,
                num_skipped_steps=count.num_skipped_steps,
                num_built=count.num_built,
                build_times=count.build_times,
                num_saves=count.num_saves,
            )
            self._blocks.append(block)
            self._of_phase[phase].append(block)
        self._finished.clear()
