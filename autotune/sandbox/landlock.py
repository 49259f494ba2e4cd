"""Landlock: a process and its future children give up the right to write outside a few folders.

Standard library only: the supervisor loads this file. Landlock needs no privilege (Linux 5.13 and newer, also under
Docker's default profile), and a process cannot undo a restriction. Reading is not restricted. Landlock cannot withhold
changes of metadata (mode, owner, times, attributes), nor truncating by path before version 3 of the interface.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, equal on all architectures of torch."""
ASK_VERSION = 1
PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

WRITE_FILE = 1 << 1
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER = 1 << 13
"""Renames and hard links between folders; before version 2 the kernel always refuses with EXDEV."""
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
CHANGES = (
    WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_CHAR
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_BLOCK
    | MAKE_SYM
)
"""Rights to change files in version 1 of the interface."""
TRUNCATES = 3
"""First version to withhold truncating by path."""
SINCE = ((2, REFER), (TRUNCATES, TRUNCATE), (5, IOCTL_DEV))
"""Rights of later versions."""
OF_FILES = WRITE_FILE | TRUNCATE | IOCTL_DEV
"""Rights in a rule on a file or device."""
SHARED_FILES = WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE
"""Rights for POSIX shared memory: files, but no folders, links or sockets."""
SCOPED = 0b11
"""Since version 6: no connections to abstract sockets and no signals outside of the domain."""
SIZES = ((1, 8), (4, 16), (6, 24))
"""Bytes of the ruleset's description by version."""

DEVICES = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"),
    *("nvidia*", "dri", "kfd", "dxg", "accel*", "infiniband", "gdrdrv"),
)
"""Writable entries of /dev: plain devices, terminals, accelerators and the links between accelerators."""
SHARED_MEMORY = "/dev/shm"
MPS_PIPES = "/tmp/nvidia-mps"
"""Default of CUDA_MPS_PIPE_DIRECTORY: pipes of the server for sharing a GPU between processes."""
KERNEL_SWITCH = "/proc/sys/vm/drop_caches"
"""Writable only for a root user with the right to change the kernel's settings."""

Syscall = Callable[..., int]
"""Makes a system call by number; raises OSError."""


def syscall(number: int, *arguments: object) -> int:
    """Makes a system call and returns the result.

    Raises:
        OSError: The kernel refuses, or does not know the call.
    """
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    result = int(function(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def version(call: Syscall = syscall) -> int:
    """Version of the kernel's Landlock interface; 0 without Landlock, or where a profile forbids the calls."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))
    except OSError:
        return 0


def handled(of_version: int) -> int:
    """All rights to change files in this version of the interface."""
    return CHANGES | sum(right for since, right in SINCE if of_version >= since)


def restrict(writable: Iterable[str], call: Syscall = syscall, *, is_forked_from: bool = False) -> None:
    """Restricts this process and its future children to changing files in a few places.

    The places are `writable`, shared memory (files alone), terminals, accelerators, and /proc. A root user with the
    right to change the kernel's settings keeps only the process's own folder of /proc. A further call can only take
    rights away.

    Args:
        writable: Folders or files; missing paths are passed over.
        call: Makes system calls.
        is_forked_from: Whether confined processes will be forked from this process. All of /proc stays writable then,
            because the folders of future processes cannot be named in a rule.

    Raises:
        OSError: The kernel has no Landlock, or refuses.
    """
    of_version = version(call)
    if of_version == 0:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock, or does not let us use it")
    rights = handled(of_version)
    size = max(size for since, size in SIZES if of_version >= since)
    described = struct.pack("=QQQ", rights, 0, SCOPED if of_version >= 6 else 0)[:size]
    ruleset = call(CREATE_RULESET, described, ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path, allowed in _rules(writable, is_forked_from):
            _add_rule(ruleset, path, allowed & rights, call)
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _rules(writable: Iterable[str], is_forked_from: bool) -> Iterator[tuple[str, int]]:
    """Pairs of a place and the rights beneath the place."""
    everything = handled(max(since for since, _ in SINCE))
    yield from ((path, everything & ~IOCTL_DEV) for path in writable)
    for pattern in DEVICES:
        yield from ((str(path), OF_FILES) for path in Path("/dev").glob(pattern))
    yield SHARED_MEMORY, SHARED_FILES
    yield os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_PIPES, WRITE_FILE
    is_harmless = is_forked_from or not os.access(KERNEL_SWITCH, os.W_OK)
    yield "/proc" if is_harmless else "/proc/self", WRITE_FILE | TRUNCATE


def _add_rule(ruleset: int, path: str, allowed: int, call: Syscall) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            allowed &= OF_FILES
        rule = struct.pack("=Qi", allowed, place)
        call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)
