"""Times steps on a larger batch, in turns with a batch of the script's own size."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class LargerBatchStage:
    """Times steps on one batch of the script's size and on a larger batch, in turns: a busy machine slows both.

    Args:
        give: Makes the loader give a batch from now on; None returns to real batches.
        own: A batch of the script's size.
        larger: The larger batch.
        finish_device: Waits for the device.
        waited_s: Gives the seconds spent on handing out batches so far.
    """

    least_steps, least_s, longest_s = 1, 0.0, 6.0
    num_turns = 6
    turn_steps, turn_s = 3, 0.15
    """Shortest turn in steps and seconds; the first step of a turn is not counted."""

    def __init__(
        self,
        give: Callable[[Any], None],
        own: Any,
        larger: Any,
        finish_device: Callable[[], None],
        waited_s: Callable[[], float],
    ) -> None:
        self._give, self._batches = give, (own, larger)
        self._finish_device, self._waited_s = finish_device, waited_s
        self._seconds, self._num_timed = [0.0, 0.0], [0, 0]
        self._turn = 0
        self._num_steps = 0
        self._began = self._waited_before = 0.0

    @property
    def is_larger(self) -> bool:
        """Whether the script gets the larger batch now."""
        return self._turn % 2 == 1

    @property
    def step_s(self) -> tuple[float, float] | None:
        """Seconds of a step on the own and on the larger batch; None before a turn of each."""
        if not all(self._num_timed):
            return None
        own_s, larger_s = (s / n for s, n in zip(self._seconds, self._num_timed, strict=True))
        return own_s, larger_s

    @property
    def is_over(self) -> bool:
        """Whether both batches have had their turns."""
        return self._turn >= self.num_turns

    def begin(self) -> None:
        """Gives the script its own batch for the first turn."""
        self._give(self._batches[0])

    def stepped(self) -> None:
        """Notes a step, and may begin the next turn."""
        self._num_steps += 1
        if self._num_steps == 1:
            self._finish_device()
            self._began, self._waited_before = time.perf_counter(), self._waited_s()
        elif self._num_steps >= self.turn_steps and time.perf_counter() - self._began >= self.turn_s:
            self._end_turn()

    def end(self, num_steps: int, wall_s: float) -> None:
        """Returns to real batches."""
        self._give(None)

    def _end_turn(self) -> None:
        self._finish_device()
        which = self._turn % 2
        waited_s = self._waited_s() - self._waited_before
        self._seconds[which] += max(time.perf_counter() - self._began - waited_s, 1e-9)
        self._num_timed[which] += self._num_steps - 1
        self._turn += 1
        self._num_steps = 0
        self._give(self._batches[self._turn % 2])
