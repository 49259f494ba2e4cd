"""Prints what a script can see of how it was started, then ends as its argument says."""

import atexit
import ctypes
import json
import multiprocessing
import os
import sys
import threading

import numpy
import pretend
import torch


def blas_threads():
    """Threads that numpy's OpenBLAS would use, and has from here on; None where it has another library."""
    assert (numpy.ones((512, 512)) @ numpy.ones((512, 512))).sum() == 512**3
    with open("/proc/self/maps") as file:
        maps = {line.split()[-1] for line in file if "openblas" in line}
    for name in ("openblas_get_num_threads64_", "scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads"):
        for path in maps:
            if hasattr(ctypes.CDLL(path), name):
                return getattr(ctypes.CDLL(path), name)()
    return None


SEEN = {
    "argv": sys.argv[1:],
    "file": os.path.basename(__file__),
    "name": __name__,
    "path": os.path.realpath(sys.path[0]) == os.getcwd(),
    "main": sys.modules["__main__"].__dict__ is globals(),
    "threads": threading.active_count(),
    "torch_threads": torch.get_num_threads(),
    "blas_threads": blas_threads(),
    "tasks": len(os.listdir("/proc/self/task")),
    "is_main_thread": threading.current_thread() is threading.main_thread(),
    "tmp": os.environ["TMPDIR"].startswith(os.path.dirname(os.environ["AUTOTUNE_TRIAL"])),
    "wait_policy": os.environ.get("OMP_WAIT_POLICY", ""),
    "stdin": sys.stdin.read(),
    "inject": any(entry.endswith("inject") for entry in sys.path),
}


def square(number):
    return number * number


def main():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        SEEN["spawned"] = pool.map(square, [7])
    atexit.register(print, "at exit")
    print(json.dumps(SEEN, sort_keys=True))
    pretend.report()
    if sys.argv[1:] == ["says goodbye"]:
        sys.exit("goodbye")


if __name__ == "__main__":
    main()
