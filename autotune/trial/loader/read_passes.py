"""Iterations over the training loader that only read it while an older one waits: an evaluation in mid-epoch."""

from __future__ import annotations

import copy
from threading import get_ident

from autotune.trial.loader.running_epoch import RunningEpoch
from autotune.trial.meter.counters import Counters
from autotune.trial.step.steps import Steps

_TRAINED_ON = -1


class ReadPasses:
    """Tells iterations that are trained on from those that are not, and knows which one goes on after these.

    Args:
        steps: Counts of backward passes.
    """

    def __init__(self, steps: Steps) -> None:
        self.waiting: RunningEpoch | None = None
        """The iteration before the latest one, until that is trained on."""
        self._was_trained_on = False
        """Whether the one that waits was."""
        self._steps = steps
        self._num_backwards = _TRAINED_ON
        """Backward passes when the latest iteration began."""
        self._is_over = False
        """Whether that has come to its end."""

    @property
    def is_look(self) -> bool:
        """Whether the latest iteration was only read until now, by the thread that trains.

        What another thread reads is used later.
        """
        return self._steps.num_backwards == self._num_backwards and self._steps.thread == get_ident()

    def begins(self, latest: RunningEpoch, counters: Counters) -> None:
        """Notes that the script begins an iteration, while this one is the latest."""
        if self.is_look and (self._is_over or not latest.is_held):
            counters.end_read_pass()
        else:
            # One that nothing was trained on yet may have its first batch in hand.
            self.waiting, self._was_trained_on = copy.copy(latest), not self.is_look
        self._num_backwards, self._is_over = self._steps.num_backwards, False

    def end(self, counters: Counters) -> None:
        """Notes that the latest iteration is over: it came to its end, or the one that waits goes on."""
        self._is_over = True
        if self.is_look:
            counters.end_read_pass()

    def taken_from(self, iterator: object, latest: RunningEpoch, counters: Counters) -> RunningEpoch:
        """The iteration that a batch is asked of: the latest one, or that which waited for it."""
        waiting = self.waiting
        if waiting is not None and waiting.is_of(iterator) and not latest.is_of(iterator):
            if self._was_trained_on:
                self.end(counters)
            self.waiting, self._num_backwards = None, _TRAINED_ON
            return waiting
        if self._steps.num_backwards != self._num_backwards:
            self.waiting = None
        return latest
