"""Charges a loader from outside torch with the processor time of the loader's threads and processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path

from autotune.model.observation import LoadingTimes
from autotune.trial.loader.foreign_batches import ForeignBatches
from autotune.trial.probe.foreign_loaders import HELPERS
from autotune.trial.torch import torch_names

NATIVE_NAMES = ("[DALI]", "dali", "spdl", "ffcv", "folly", "IOThreadPool", "CPUThreadPool")
"""Beginnings of the names of threads that the libraries start without Python."""
TASKS = Path("/proc/self/task")


class ForeignWork:
    """Processor time of a foreign loader's threads and processes over some steps.

    All Python threads count, except for the training thread and the threads of known tools: a script without a
    DataLoader has threads for data.

    Args:
        batches: Counts the batches; called in the training thread.
    """

    def __init__(self, batches: ForeignBatches) -> None:
        self.batches = batches
        self._before: dict[str, float] = {}
        self._num_batches = self._num_samples = 0

    def begin(self) -> None:
        """Begins to charge; to be called in the training thread."""
        self._before = _processor_s()
        self._num_batches, self._num_samples = self.batches.num_batches, self.batches.num_samples

    def end(self) -> LoadingTimes | None:
        """The work since `begin`; None when no batch was given."""
        num_batches = self.batches.num_batches - self._num_batches
        if not num_batches:
            return None
        spent = [seconds - self._before.get(name, 0.0) for name, seconds in _processor_s().items()]
        total_s = sum(spent)
        return LoadingTimes(
            num_batches=num_batches,
            num_samples=self.batches.num_samples - self._num_samples,
            busy_s=max(total_s, 1e-9),
            cpu_s=total_s,
            open_s=0.0,
            read_s=0.0,
            decode_s=0.0,
            num_files=0,
            read_bytes=0,
            num_building=sum(seconds > 0 for seconds in spent),
        )


def _processor_s() -> dict[str, float]:
    """Processor seconds so far of the threads and child processes that load, by name and number."""
    own = threading.get_native_id()
    tools = torch_names.compiler_threads()
    python = {thread.native_id: thread for thread in threading.enumerate() if thread not in tools}
    found: dict[str, float] = {}
    for task in _tasks():
        name = _name_of(task)
        thread = python.get(int(task.name))
        is_loading = name.startswith(NATIVE_NAMES)
        if thread is not None:
            is_loading = not thread.name.startswith(HELPERS) and thread is not threading.main_thread()
        if is_loading and int(task.name) != own:
            found[task.name] = _seconds_of(task)
    for child in multiprocessing.active_children():
        found[f"process {child.pid}"] = _seconds_of(Path(f"/proc/{child.pid}"))
    return found


def _tasks() -> list[Path]:
    try:
        return list(TASKS.iterdir())
    except OSError:
        return []


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:  # the thread has ended
        return ""


def _seconds_of(task: Path) -> float:
    """Processor seconds of a thread or process so far; 0 after its end."""
    try:
        words = (task / "stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
