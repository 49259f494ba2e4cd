"""What a script can see of its process that its speed depends on, as a line of JSON."""

import gc
import json
import locale
import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
import zlib
from contextlib import suppress

import numpy
import torch

IN_STATUS = ("SigBlk", "SigIgn", "SigCgt", "Cpus_allowed_list", "Mems_allowed_list", "THP_enabled", "Seccomp", "Spec")
"""How the lines of /proc/self/status begin that are looked at."""
IN_PROC = ("timerslack_ns", "oom_score_adj", "coredump_filter", "personality", "cgroup")
TRIAL = re.compile(re.escape(os.path.dirname(os.environ["AUTOTUNE_TRIAL"])) + "/[^/]+")
"""The folder of a trial, whose name every one has for itself."""
NUMBERED = re.compile(r"^(?:/.*)?(pipe:|socket:|/dev/pts/|/dev/shm/[a-z]+).*")
"""What has the same kind of name in every process."""


def look(when):
    """Prints all of it, when the libraries have the threads that they compute with: a fork ends those."""
    numpy.ones((512, 512)) @ numpy.ones((512, 512))
    seen = {
        "when": when,
        "num_denormals": (torch.full((1 << 20,), 1e-40) * 1).count_nonzero().item(),
        "environment": environment(),
        "process": process(),
        "tasks": tasks(),
        "descriptors": descriptors(),
        "interpreter": interpreter(),
        "collector": collector(),
        "torch": of_torch(),
        "numpy": numpy.geterr(),
    }
    print(json.dumps(seen, sort_keys=True))


def environment():
    """Checksums: a test that fails must not show what anybody's variables hold."""
    values = {name: TRIAL.sub("(trial)", value) for name, value in os.environ.items()}
    return {name: zlib.crc32(os.fsencode(value)) for name, value in values.items() if not name.startswith("AUTOTUNE_")}


def process():
    with open("/proc/self/status") as file:
        status = [line.strip() for line in file if line.startswith(IN_STATUS)]
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        "status": status,
        "limits": limits,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "umask": os.umask(0o22),
        "leads": [os.getpid() == os.getpgrp(), os.getpid() == os.getsid(0)],
        "timers": [
            signal.getitimer(timer) for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
        ],
        **{name: of_proc(name) for name in IN_PROC},
    }


def of_proc(name):
    try:
        with open(f"/proc/self/{name}") as file:
            return file.read()
    except OSError as error:
        return error.strerror


def tasks():
    """Name, affinity, scheduling class and niceness of every thread."""
    numbers = [int(name) for name in os.listdir("/proc/self/task")]
    found = []
    for number in numbers:
        with open(f"/proc/self/task/{number}/comm") as file:
            name = file.read().strip()
        affinity = sorted(os.sched_getaffinity(number))
        found.append([name, affinity, os.sched_getscheduler(number), os.getpriority(os.PRIO_PROCESS, number)])
    return sorted(found)


def descriptors():
    """What they are, without the numbers that every process has for itself.

    A forked trial has one more of each process that it was forked from: the kernel's account of the memory that the
    two share. It is read once, after the window.
    """
    targets = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # The one by which the folder was listed.
            target = os.readlink(f"/proc/self/fd/{name}")
            if not target.endswith("/smaps_rollup"):
                targets.append(target)
    return sorted(NUMBERED.sub(r"\1", target) for target in targets)


def interpreter():
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "switch_interval": sys.getswitchinterval(),
        "recursion_limit": sys.getrecursionlimit(),
        "is_traced": [sys.gettrace() is not None, sys.getprofile() is not None, threading.gettrace() is not None],
        "stack_size": threading.stack_size(),
        "locale": locale.setlocale(locale.LC_ALL),
        "start_method": multiprocessing.get_start_method(allow_none=True),
    }


def collector():
    """Objects that it walks through: none that are frozen."""
    return {
        "is_on": gc.isenabled(),
        "thresholds": gc.get_threshold(),
        "num_callbacks": len(gc.callbacks),
        "num_objects": len(gc.get_objects()),
        "debug": gc.get_debug(),
    }


def of_torch():
    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "types": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "allow_tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn": [torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
        "mkldnn": [torch.backends.mkldnn.enabled, torch.backends.mkldnn.is_available()],
        "deterministic": [
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ],
        "gradients": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "autocast": [torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()],
        "sharing": torch.multiprocessing.get_sharing_strategy(),
    }
