"""What real counters say of the work of others."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from autotune.host import cpu_device
from autotune.runner.pressure import busy_s, num_running
from autotune.runner.surroundings_watch import SurroundingsWatch

BURNS = "while True: pass"
MOST_LOOKS = 300
"""Looks at the burner, a tenth of a second apart: beside much load it takes long to get a core."""


@pytest.mark.skipif(busy_s(frozenset(range(1024))) is None, reason="this kernel does not say how busy its cores are")
def test_work_of_others_is_seen_and_the_trials_own_is_not_taken_for_it() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", BURNS]) as burner:
        try:
            watches = {False: SurroundingsWatch(cpu_device()), True: SurroundingsWatch(cpu_device())}
            began, began_s = psutil.Process(burner.pid).cpu_times().user, time.monotonic()
            for _ in range(MOST_LOOKS):
                for is_ours, watch in watches.items():
                    watch.look([burner.pid] if is_ours else [], in_window=True)
                time.sleep(0.1)
                if time.monotonic() - began_s >= 1.6 and psutil.Process(burner.pid).cpu_times().user - began >= 0.1:
                    break
            burnt = (psutil.Process(burner.pid).cpu_times().user - began) / (time.monotonic() - began_s)
        finally:
            burner.kill()
    as_others, as_ours = watches[False].found(), watches[True].found()
    assert as_others is not None and as_ours is not None
    assert as_others.foreign_cpus is not None and as_ours.foreign_cpus is not None
    # Whatever else runs here is in both alike; the burner is in one alone, with the cores that it got beside the rest.
    assert as_others.foreign_cpus - as_ours.foreign_cpus > burnt / 2


@pytest.mark.skipif(num_running() is None, reason="this kernel does not say what runs")
def test_a_task_that_runs_is_counted() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", BURNS]) as burner:
        try:
            counts = []
            for _ in range(20):
                time.sleep(0.02)
                found = num_running()
                assert found is not None
                counts.append(found[0])
        finally:
            burner.kill()
    # Whoever reads runs as well.
    assert max(counts) >= 2
