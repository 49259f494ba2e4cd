"""Recognises iterations that only read the training loader while a training iteration waits: a mid-epoch evaluation."""

from __future__ import annotations

import copy
from threading import get_ident

from autotune.trial.loader.running_epoch import RunningEpoch
from autotune.trial.meter.counters import Counters
from autotune.trial.step.steps import Steps

_TRAINED_ON = -1


class ReadPasses:
    """Distinguishes training iterations from iterations that only read, and keeps the waiting training iteration.

    Args:
        steps: Counts of backward passes.
    """

    def __init__(self, steps: Steps) -> None:
        self.waiting: RunningEpoch | None = None
        """The iteration before the latest iteration, until the script trains on the latest."""
        self._was_trained_on = False
        """Whether the script trained on the waiting iteration."""
        self._steps = steps
        self._num_backwards = _TRAINED_ON
        """Number of backward passes at the beginning of the latest iteration."""
        self._is_over = False
        """Whether the latest iteration has ended."""

    @property
    def is_only_read(self) -> bool:
        """Whether the training thread has only read the latest iteration so far.

        Batches read by another thread are used later, and count as training.
        """
        return self._steps.num_backwards == self._num_backwards and self._steps.thread == get_ident()

    def begins(self, latest: RunningEpoch, counters: Counters) -> None:
        """Notes that the script begins an iteration after `latest`."""
        if self.is_only_read and (self._is_over or not latest.is_held):
            counters.end_read_pass()
        else:
            # The script may hold the first batch of `latest`, and train on the batch later.
            self.waiting, self._was_trained_on = copy.copy(latest), not self.is_only_read
        self._num_backwards, self._is_over = self._steps.num_backwards, False

    def end(self, counters: Counters) -> None:
        """Notes that the latest iteration has ended, or that the waiting iteration goes on."""
        self._is_over = True
        if self.is_only_read:
            counters.end_read_pass()

    def taken_from(self, iterator: object, latest: RunningEpoch, counters: Counters) -> RunningEpoch:
        """The iteration of an iterator that is asked for a batch: the latest or the waiting iteration."""
        waiting = self.waiting
        if waiting is not None and waiting.is_of(iterator) and not latest.is_of(iterator):
            if self._was_trained_on:
                self.end(counters)
            self.waiting, self._num_backwards = None, _TRAINED_ON
            return waiting
        if self._steps.num_backwards != self._num_backwards:
            self.waiting = None
        return latest
