"""Threads of torch in a process of their own: what another thread asks for later must not reach the one that trains."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import threading
import torch
from autotune.settings import Settings
from autotune.trial.apply.environment_seams import apply_threads
apply_threads(Settings(intra_op_threads={asked}), Settings(intra_op_threads={script_settings}))
pinning = threading.Thread(target=torch.set_num_threads, args=(1,))
pinning.start()
pinning.join()
print(torch.get_num_threads())
"""


def threads_in_force(asked: int, script_settings: int, environment: dict[str, str]) -> int:
    command = [sys.executable, "-c", SCRIPT.format(asked=asked, script_settings=script_settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


def test_the_loaders_pinning_thread_does_not_take_the_training_threads_away() -> None:
    """torch's pinning thread sets one thread for the process, which a thread that never asked before then gets."""
    assert threads_in_force(3, 2, dict(os.environ)) == 3
    assert threads_in_force(2, 2, {**os.environ, "OMP_NUM_THREADS": "2"}) == 2
