"""What tqdm leaves behind in a process that is forked."""

from __future__ import annotations

import io
import threading

import pytest

from autotune.trial.start import progress_bars

tqdm = pytest.importorskip("tqdm")


def bar() -> None:
    with tqdm.tqdm(range(2), file=io.StringIO()) as values:
        for _ in values:
            pass


def test_the_monitor_ends_and_the_next_bar_has_another() -> None:
    bar()
    progress_bars.end_monitor()
    assert not [thread for thread in threading.enumerate() if type(thread).__name__ == "TMonitor"]
    bar()
    assert [thread for thread in threading.enumerate() if type(thread).__name__ == "TMonitor"]
    progress_bars.end_monitor()


def test_a_lock_that_another_holds_is_not_the_one_of_this_process_any_more() -> None:
    bar()
    held = tqdm.tqdm.get_lock()
    assert progress_bars.num_semaphores() == 1
    with held:
        progress_bars.renew_lock()
        assert tqdm.tqdm.get_lock().locks[0] is not held.locks[0]
    bar()
    progress_bars.end_monitor()
