"""Landlock: a process gives up the right to write outside a few folders, for itself and all that it starts.

Standard library only: the warden loads this file. The kernel needs no privilege for it (Linux 5.13 and newer, Docker's
default profile included) and never gives the right back. Reading stays as it was. Metadata (mode, owner, times,
attributes) is beyond Landlock; so is truncating by path before version 3 of its interface.
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
"""Numbers of the system calls: the same on every architecture that torch runs on."""
ASK_VERSION = 1
PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

WRITE_FILE = 1 << 1
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER = 1 << 13
"""Renames and hard links from one folder to another; before version 2 they fail with EXDEV wherever they are."""
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
"""What version 1 of the interface knows of changing files."""
TRUNCATES = 3
"""Version from which on truncating by path is withheld; before, it is possible everywhere."""
SINCE = ((2, REFER), (TRUNCATES, TRUNCATE), (5, IOCTL_DEV))
"""Rights that later versions added."""
OF_FILES = WRITE_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule on something other than a folder may name."""
SHARED_FILES = WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE
"""What POSIX shared memory needs of its folder: no folders, no links, no sockets there."""
SCOPED = 0b11
"""Since version 6: no connection to abstract sockets, and no signal to processes, outside of the domain."""
SIZES = ((1, 8), (4, 16), (6, 24))
"""Bytes of the ruleset's description by version."""

DEVICES = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"),
    *("nvidia*", "dri", "kfd", "dxg", "accel*", "infiniband", "gdrdrv"),
)
"""Entries of /dev that a training script may write to: the plain ones, terminals, and accelerators with their links."""
SHARED_MEMORY = "/dev/shm"
MPS_PIPES = "/tmp/nvidia-mps"
"""Where the server that shares a GPU between processes takes orders, unless CUDA_MPS_PIPE_DIRECTORY names a place."""
KERNEL_SWITCH = "/proc/sys/vm/drop_caches"
"""Writable for a root user that may change settings of the kernel through /proc, and for nobody else."""

Syscall = Callable[..., int]
"""Makes a system call by its number; raises OSError."""


def syscall(number: int, *arguments: object) -> int:
    """Makes a system call; gives back its result.

    Raises:
        OSError: The kernel refuses, or does not know it.
    """
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    result = int(function(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def version(call: Syscall = syscall) -> int:
    """Version of the kernel's Landlock interface; 0 where there is none, or a profile of the container forbids it."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))
    except OSError:
        return 0


def handled(of_version: int) -> int:
    """All rights to change files that this version of the interface can withhold."""
    return CHANGES | sum(right for since, right in SINCE if of_version >= since)


def restrict(writable: Iterable[str], call: Syscall = syscall, *, is_forked_from: bool = False) -> None:
    """Lets this process, and all that it starts from now on, change files only where it needs to.

    Changes stay possible beneath `writable`, in shared memory (files alone), on terminals and accelerators, and in
    /proc, where nothing belongs to the user; of a root user that may change settings of the kernel there, only in its
    own folder of /proc. A second call can only take rights away.

    Args:
        writable: Folders, or files; those that are not there are passed over.
        call: Makes system calls.
        is_forked_from: Processes that are confined by themselves will be forked from this one. Each of them must be
            able to write to its own folder of /proc, which is not there yet: all of /proc stays writable.

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
    """Pairs of a place and the rights beneath it."""
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
