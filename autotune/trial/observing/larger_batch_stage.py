"""The part of an observation that trains on a batch many times as large, in turns with the script's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class LargerBatchStage:
    """The step on one batch again and again, and on the same so many times over, in turns: a loaded machine slows both.

    Args:
        give: Makes the loader give that batch, or real ones again for None.
        own: A batch of the script's size.
        larger: The larger one.
        finish_device: Waits for the device.
        waited_s: Time that handing out batches took so far.
    """

    least_steps, least_s, longest_s = 1, 0.0, 6.0
    num_turns = 6
    turn_steps, turn_s = 3, 0.15
    """Least length of a turn; its first step is not counted."""

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
        self._num_seen = 0
        self._began = self._waited_before = 0.0

    @property
    def is_larger(self) -> bool:
        """Whether the script is given a batch that is not of its own size."""
        return self._turn % 2 == 1

    @property
    def step_s(self) -> tuple[float, float] | None:
        """Seconds of a step on the own and on the larger batch; None where one was not seen."""
        if not all(self._num_timed):
            return None
        own_s, larger_s = (s / n for s, n in zip(self._seconds, self._num_timed, strict=True))
        return own_s, larger_s

    @property
    def is_over(self) -> bool:
        """Whether both have had their turns."""
        return self._turn >= self.num_turns

    def begin(self) -> None:
        """The next batch is the first one's."""
        self._give(self._batches[0])

    def stepped(self) -> None:
        """A step was made."""
        self._num_seen += 1
        if self._num_seen == 1:
            self._finish_device()
            self._began, self._waited_before = time.perf_counter(), self._waited_s()
        elif self._num_seen >= self.turn_steps and time.perf_counter() - self._began >= self.turn_s:
            self._end_turn()

    def end(self, num_steps: int, wall_s: float) -> None:
        """Ends it."""
        self._give(None)

    def _end_turn(self) -> None:
        self._finish_device()
        which = self._turn % 2
        waited_s = self._waited_s() - self._waited_before
        self._seconds[which] += max(time.perf_counter() - self._began - waited_s, 1e-9)
        self._num_timed[which] += self._num_seen - 1
        self._turn += 1
        self._num_seen = 0
        self._give(self._batches[self._turn % 2])
