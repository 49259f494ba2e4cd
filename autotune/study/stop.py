"""Ends a search at the user's request, and waits for runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.runner.runner import Run


class StopRequest:
    """A request to stop: once, after the running trial; twice, at once. A signal handler may ask.

    Args:
        saves: Whether a finished trial is worth the wait; otherwise the first request ends at once.
    """

    def __init__(self, *, saves: bool = True) -> None:
        self.level = 0
        self._saves = saves

    def request(self) -> None:
        """Asks for the end, a first or a second time."""
        self.level += 1 if self._saves else 2


POLL_S = 0.1


def wait_for(run: Run, stop: StopRequest, *, ends_at: int = 2, now_and_then: Callable[[], None] = lambda: None) -> None:
    """Waits until a run is over; the second request to stop ends the run.

    Args:
        run: The run.
        stop: The request.
        ends_at: Number of requests to end the run; 1 for a run without use by itself.
        now_and_then: Called ten times a second, for instance to renew a lease.
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
        # The caller will not ask for the result, and the run must not go on alone.
        run.cancel()
        raise
