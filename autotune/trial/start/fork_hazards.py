"""Why processes cannot be forked from this one soundly: what would not be the same in them, or would hang."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.trial.start.native_threads import is_fork_aware

CANARY_LIMIT_S = 20.0
"""A child that computes something small and is not through by then hangs."""
CUDA_LOST, CANNOT_TRAIN, BROKEN = 3, 4, 5
"""Statuses of a child that tells why."""
MAX_NVML_STARTS = 1000
"""A script asks for devices no more often before it trains."""
MAX_NAMES = 3
"""Of threads that are told."""


def why_not(
    who: str, *, is_known: Callable[[int, str], bool], num_known_tasks: int = 1, num_known_semaphores: int = 0
) -> str:
    """Why processes cannot be forked from this one soundly; empty when they can.

    Args:
        who: Whose doing it would be, to begin a sentence with.
        is_known: Whether an open file, by its number and target, is accounted for.
        num_known_tasks: Threads of the operating system that may be there, the main one among them.
        num_known_semaphores: Semaphores that may be shared.
    """
    release_openmp()
    release_nvml()
    reap_forgotten()
    fork_and_wait(lambda: 0)  # Pools that end at a fork, such as OpenBLAS's, are gone after one.
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
    """Ends the thread pools of every GNU OpenMP in this process: no pool survives a fork, and it would be waited for.

    `omp_pause_resource_all` is OpenMP 5.0's; libgomp joins the calling thread's pool in it.
    """
    for path in mapped_libraries("libgomp"):
        pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
        if pause is not None:
            pause(1)


def release_nvml() -> None:
    """Ends NVML, which torch starts when it is asked for devices, and never ends: a fork must not take its files along.

    The next question for devices starts it again. NVML counts its starts, and does not say how many there were. A
    script that has started it by pynvml holds handles of it, so that it stays as it is, and its files are told.
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
    """Buries the ended processes of `subprocess` whose objects are gone, so that nobody can ask how they ended.

    Python does so itself whenever it starts the next one.
    """
    getattr(subprocess, "_cleanup", lambda: None)()


def _tasks() -> list[Path]:
    """Threads of this process, as the operating system has them; the main one first."""
    return sorted(Path("/proc/self/task").iterdir(), key=lambda task: int(task.name) != os.getpid())


def _said_of(task: Path, what: str) -> str:
    """What the operating system says of a thread; empty where it has ended meanwhile. Its name may be any bytes."""
    try:
        return (task / what).read_text(errors="replace").strip()
    except OSError:
        return ""


def _not_fork_aware(tasks: Sequence[Path]) -> list[Path]:
    """The threads whose libraries do not prepare for forks, as far as we know."""
    files = {Path(line.rpartition(" ")[2]).name for line in _mappings()} if tasks else set()
    return [task for task in tasks if not is_fork_aware(_said_of(task, "comm"), files)]


def _native_names(tasks: Sequence[Path]) -> str:
    """How many threads there are beside the main one, and their names, by which the library is known that made them."""
    others = tasks[1:]
    names = sorted({_said_of(task, "comm") for task in others} - {""})
    shown = ", ".join(names[:MAX_NAMES])
    return f"{len(others)} thread{'s' * (len(others) > 1)} ({shown}{', ...' * (len(names) > MAX_NAMES)})"


def mapped_libraries(word: str) -> list[str]:
    """Paths of the loaded files with that word in their names."""
    paths = {line.rpartition(" ")[2] for line in _mappings()}
    return sorted(path for path in paths if word in Path(path).name and ".so" in path)


def _mappings() -> list[str]:
    """The lines of this process's memory map; paths in them may be any bytes."""
    return Path("/proc/self/maps").read_text(errors="surrogateescape").split("\n")[:-1]


def descriptors() -> list[tuple[int, str]]:
    """Open files of this process: number and target."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.append((int(path.name), str(path.readlink())))
        except OSError:
            continue  # The one by which the folder itself was read.
    return sorted(found)


def _shared_mappings(num_known_semaphores: int) -> list[str]:
    """Names of writable memory that other processes see."""
    names = [line.split(None, 5)[-1] for line in _mappings() if line.split()[1] == "rw-s"]
    semaphores = [name for name in names if name.startswith("/dev/shm/sem.")]
    return [name for name in names if name not in semaphores] + semaphores[num_known_semaphores:]


def _canary() -> int:
    """One small step with gradients, in parallel where there are cores; the status to end with."""
    torch = importlib.import_module("torch")
    if importlib.import_module("autotune.trial.torch.torch_names").is_cuda_lost():
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
    """The exit status of a child that does that work; None when it had to be killed."""
    pid = os.fork()
    if pid == 0:
        status = BROKEN
        try:
            status = work()
        finally:
            os._exit(status)
    deadline = time.monotonic() + CANARY_LIMIT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None
