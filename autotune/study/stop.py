"""Asking a search to end, and waiting for a run with an ear open for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.runner.runner import Run


class StopRequest:
    """Once: end after the running trial. Twice: end the running trial as well. Safe to call from a signal handler.

    Args:
        saves: Whether what is finished is worth the wait; where nothing is, asking once ends at once.
    """

    def __init__(self, *, saves: bool = True) -> None:
        self.level = 0
        self._saves = saves

    def request(self) -> None:
        """Asks once more."""
        self.level += 1 if self._saves else 2


POLL_S = 0.1


def wait_for(run: Run, stop: StopRequest, *, ends_at: int = 2, now_and_then: Callable[[], None] = lambda: None) -> None:
    """Waits until a run is over; a stop request ends it, the second unless told otherwise.

    Args:
        run: The run.
        stop: The request.
        ends_at: The number of the request that ends the run; 1 where a finished one is of no use by itself.
        now_and_then: Called at every look, for instance to renew a lease.
    """
    is_cancelled = False
    try:
        while not run.poll():
            if stop.level >= ends_at and not is_cancelled:
                is_cancelled = True
                run.cancel()
            now_and_then()
            time.sleep(POLL_S)
    except BaseException:
        # Nobody will ask for its result: it must not go on alone, in a process that lives on.
        run.cancel()
        raise
