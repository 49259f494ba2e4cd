"""A worker ends what a killed search left behind, and names the devices that were held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from autotune.service.worker.leftovers import held_devices

_WORKER = """
import os, subprocess, sys, time
from autotune.sandbox.process_tree import PR_SET_CHILD_SUBREAPER, children_of, prctl
from autotune.service.worker import leftovers

prctl(PR_SET_CHILD_SUBREAPER, 1)
leftovers.held_devices.__defaults__ = ("/dev/zero",)
loader = "import time; device = open('/dev/zero'); print('held', flush=True); time.sleep(600)"
trial = f"import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', {loader!r}]); os.kill(os.getpid(), 9)"
search = subprocess.Popen([sys.executable, "-c", trial], stdout=subprocess.PIPE)
search.stdout.readline()
search.wait()
(orphan,) = children_of(os.getpid())
print(orphan, leftovers.end_leftovers(), leftovers.end_leftovers(), children_of(os.getpid()), sep="|")
"""


def test_an_orphan_of_a_killed_search_is_ended_and_its_device_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", _WORKER], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    orphan, first, second, left = done.stdout.strip().split("|")
    assert f"ended process {orphan} (" in first and "left behind on /dev/zero" in first
    assert (second, left) == ("[]", "[]")
    assert not Path("/proc", orphan).exists()


def test_a_process_of_nobody_holds_nothing() -> None:
    assert held_devices(1 << 30) == []
