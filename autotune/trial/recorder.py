"""Blocks as they end: marks on the device's clock, turned into durations once the device has come to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autotune.measure.block import Block, Phase
from autotune.trial.clock import Clock


class Count:
    """What the running block holds so far."""

    __slots__ = ("num_built", "num_micro_batches", "num_samples", "num_skipped_steps", "num_steps", "wait_s")

    def __init__(self) -> None:
        self.num_built: float | None = None
        self.num_steps = 0
        self.num_micro_batches = 0
        self.num_samples = 0.0
        self.num_skipped_steps = 0
        self.wait_s = 0.0


class Recorder:
    """All blocks of a trial in order, raw, warm-up included.

    Args:
        clock: The clock of the device that trains.
        num_built: Batches that the loader's workers have built until now; None where nobody sees them.
    """

    def __init__(self, clock: Clock, num_built: Callable[[], float | None] = lambda: None) -> None:
        self.count = Count()
        self.phase = Phase.WARMUP
        self._clock = clock
        self._num_built = num_built
        self._last_num_built: float | None = None
        self._last_mark: Any = None
        self._pending: list[tuple[Any, Phase, Count]] = []
        self._blocks: list[Block] = []
        self._of_phase: dict[Phase, list[Block]] = {phase: [] for phase in Phase}

    def begin(self, phase: Phase) -> None:
        """Starts a phase here; a block that was not ended is dropped."""
        self.finish()
        self.phase = phase
        self.count = Count()
        self._last_num_built = self._seen_built()
        self._last_mark = self._clock.mark()

    def end_block(self) -> None:
        """Ends the running block here."""
        num_built = self._seen_built()
        if num_built is not None and self._last_num_built is not None:
            self.count.num_built = num_built - self._last_num_built
        self._last_num_built = num_built
        self._pending.append((self._clock.mark(), self.phase, self.count))
        self.count = Count()
        self._settle()

    def blocks(self, phase: Phase) -> Sequence[Block]:
        """Blocks of a phase that the device has finished; asked for at the end of every block, so never copied."""
        return self._of_phase[phase]

    def finish(self) -> tuple[Block, ...]:
        """All blocks; waits for the device."""
        self._clock.finish()
        self._settle()
        return tuple(self._blocks)

    def _seen_built(self) -> float | None:
        """In the window alone: the blocks before it may be single steps, and nothing is concluded from them."""
        return self._num_built() if self.phase is Phase.WINDOW else None

    def _settle(self) -> None:
        while self._pending and self._clock.is_reached(self._pending[0][0]):
            mark, phase, count = self._pending.pop(0)
            duration_s = max(self._clock.seconds(self._last_mark, mark), 1e-9)
            self._last_mark = mark
            if count.num_steps and count.num_samples:
                block = Block(
                    phase=phase,
                    num_steps=count.num_steps,
                    num_micro_batches=max(1, count.num_micro_batches),
                    num_samples=count.num_samples,
                    duration_s=duration_s,
                    data_wait_s=count.wait_s,
                    num_skipped_steps=count.num_skipped_steps,
                    num_built=count.num_built,
                )
                self._blocks.append(block)
                self._of_phase[phase].append(block)
