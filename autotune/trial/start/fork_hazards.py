"""Reasons against forks of this process: state that a fork would change, and threads that a fork would lose."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.sandbox import fork_callbacks

CANARY_LIMIT_S = 20.0
"""Longest time of a child for a small computation; a child that takes longer hangs."""
CUDA_LOST, CANNOT_TRAIN, BROKEN = 3, 4, 5
"""Exit statuses of a child that names the reason."""
MAX_NVML_STARTS = 1000
"""More than the number of times that a script asks for devices before the training."""
MAX_NAMES = 3
"""Most names of threads in a message."""


@dataclass(frozen=True, slots=True)
class ForkAware:
    """A kind of thread that does not forbid a fork."""

    name: str
    """The thread's name in the operating system."""
    library: str
    """Start of the file name of the library that starts the thread; the process must have mapped the file."""


FORK_AWARE: tuple[ForkAware, ...] = (
    # pyarrow, and everything that imports pyarrow: pandas, datasets, scikit-learn, Hugging Face's Trainer. Arrow
    # builds jemalloc with `background_thread:true`. jemalloc takes all locks before a fork. Afterwards
    # `background_thread_postfork_child` (src/background_thread.c) marks the thread as stopped and switches it off: in
    # the child, allocating threads also give pages back. Arrow allocates by mimalloc unless told otherwise. Tried with
    # pyarrow 26: 8 children of one process each sort, group and filter tables in three threads at once with jemalloc,
    # mimalloc and malloc, write Parquet, map data sets with several processes, and load batches by workers. The
    # processor time of allocations by jemalloc is the same in a child as in the parent.
    ForkAware(name="jemalloc_bg_thd", library="libarrow.so"),
)
"""polars (`polars-ooc-clea`) is left out although forked children worked: the manual of polars forbids forks."""


def is_fork_aware(name: str, mapped_files: Iterable[str]) -> bool:
    """Whether a fork may leave the thread behind, because the thread's library prepares for forks.

    Args:
        name: Name of the thread in the operating system.
        mapped_files: Names of the files mapped by this process, without folders.
    """
    libraries = [each.library for each in FORK_AWARE if each.name == name]
    return any(file.startswith(library) for library in libraries for file in mapped_files)


def why_not(
    who: str, *, is_known: Callable[[int, str], bool], num_known_tasks: int = 1, num_known_semaphores: int = 0
) -> str:
    """Why forks of this process are not sound; empty when forks are sound.

    Args:
        who: Cause of the obstacle, as the subject of a sentence.
        is_known: Whether a file may be open, by descriptor and target.
        num_known_tasks: Expected threads of the operating system, with the main thread.
        num_known_semaphores: Semaphores that may be shared.
    """
    release_openmp()
    release_nvml()
    reap_forgotten()
    fork_and_wait(lambda: 0)  # Ends pools that end at a fork, such as OpenBLAS's.
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if threads:
        return f"{who} has started the thread {threads[0]}"
    tasks = _tasks()
    unaware = [*tasks[:1], *_not_fork_aware(tasks[1:])]
    if len(unaware) > num_known_tasks:
        return f"{who} has started {_native_names(unaware)} outside of Python"
    if any(_said_of(task, "children") for task in tasks):
        return f"{who} has started a process"
    opened = [target for number, target in descriptors() if not is_known(number, target)]
    if opened:
        return f"{who} keeps {opened[0]} open"
    mapped = _shared_mappings(num_known_semaphores)
    if mapped:
        return f"{who} shares the memory {mapped[0]}"
    return _canary_died(who)


def _canary_died(who: str) -> str:
    status = fork_and_wait(_canary)
    if status is None:
        return "a forked process hangs as soon as it computes"
    endings = {
        0: "",
        CUDA_LOST: f"{who} has asked the CUDA driver for its devices, after which no forked process can use them",
        CANNOT_TRAIN: "a forked process cannot train: it raised an error in a small step",
    }
    return endings.get(status, f"a forked process that computes ends with status {status}")


def release_openmp() -> None:
    """Ends the thread pools of every GNU OpenMP in this process: a forked process would wait for lost threads.

    `omp_pause_resource_all` comes from OpenMP 5.0; in libgomp the call joins the pool of the calling thread.
    """
    for path in mapped_libraries("libgomp"):
        pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
        if pause is not None:
            pause(1)


def release_nvml() -> None:
    """Ends NVML, because a fork must not inherit NVML's files. torch starts NVML for device counts and never ends NVML.

    The next question for devices starts NVML again. NVML counts starts without telling the count. A script that has
    started NVML by pynvml holds handles, so NVML stays, and the check for open files reports NVML's files.
    """
    if getattr(sys.modules.get("pynvml"), "_nvmlLib_refcount", 0):
        return
    for path in mapped_libraries("libnvidia-ml"):
        end = getattr(ctypes.CDLL(path), "nvmlShutdown", None)
        for _ in range(MAX_NVML_STARTS):
            is_open = any(target.startswith("/dev/nvidia") for _, target in descriptors())
            if end is None or not is_open or end() != 0:
                break


def reap_forgotten() -> None:
    """Buries ended processes of lost `subprocess` objects, as Python does at the start of the next process."""
    getattr(subprocess, "_cleanup", lambda: None)()


def _tasks() -> list[Path]:
    """Threads of this process in the operating system's list, the main thread first."""
    return sorted(Path("/proc/self/task").iterdir(), key=lambda task: int(task.name) != os.getpid())


def _said_of(task: Path, what: str) -> str:
    """A file of a thread in /proc, of any bytes; empty for a thread that has ended meanwhile."""
    try:
        return (task / what).read_text(errors="replace").strip()
    except OSError:
        return ""


def _not_fork_aware(tasks: Sequence[Path]) -> list[Path]:
    """Threads whose libraries are not known to prepare for forks."""
    files = {Path(line.rpartition(" ")[2]).name for line in _mappings()} if tasks else set()
    return [task for task in tasks if not is_fork_aware(_said_of(task, "comm"), files)]


def _native_names(tasks: Sequence[Path]) -> str:
    """Number and names of the threads beside the main thread; the names tell the library."""
    others = tasks[1:]
    names = sorted({_said_of(task, "comm") for task in others} - {""})
    shown = ", ".join(names[:MAX_NAMES])
    return f"{len(others)} thread{'s' * (len(others) > 1)} ({shown}{', ...' * (len(names) > MAX_NAMES)})"


def mapped_libraries(word: str) -> list[str]:
    """Paths of the loaded libraries with a word in the file name."""
    paths = {line.rpartition(" ")[2] for line in _mappings()}
    return sorted(path for path in paths if word in Path(path).name and ".so" in path)


def _mappings() -> list[str]:
    """Lines of this process's memory map; paths may hold any bytes."""
    return Path("/proc/self/maps").read_text(errors="surrogateescape").split("\n")[:-1]


def descriptors() -> list[tuple[int, str]]:
    """Open files of this process: descriptor and target."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.append((int(path.name), str(path.readlink())))
        except OSError:
            continue  # The descriptor of the folder under iteration.
    return sorted(found)


def _shared_mappings(num_known_semaphores: int) -> list[str]:
    """Names of writable memory shared with other processes."""
    names = [line.split(None, 5)[-1] for line in _mappings() if line.split()[1] == "rw-s"]
    semaphores = [name for name in names if name.startswith("/dev/shm/sem.")]
    return [name for name in names if name not in semaphores] + semaphores[num_known_semaphores:]


def _canary() -> int:
    """Computes a small step with gradients, on several cores if available; the exit status."""
    torch = importlib.import_module("torch")
    from autotune.trial.torch import torch_names  # Imports torch, which this file can do without.

    if torch_names.is_cuda_lost():
        return CUDA_LOST
    try:
        weight = torch.ones(128, 128, requires_grad=True)
        with torch.enable_grad():
            (torch.ones(256, 128) @ weight).exp().mean().backward()
        torch.ones(1 << 18).exp_().sum().item()
    except Exception:
        return CANNOT_TRAIN
    return 0


def fork_and_wait(work: Callable[[], int]) -> int | None:
    """The exit status of a child that does the work; None for a child that had to be killed.

    Callbacks of the script stay mute, as at the fork of a trial.
    """
    fork_callbacks.mute()
    pid = os.fork()
    if pid == 0:
        status = BROKEN
        try:
            status = work()
        finally:
            os._exit(status)
    fork_callbacks.unmute()
    deadline = time.monotonic() + CANARY_LIMIT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None
