"""Keeps a second worker of the same name off this machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.errors import UsageError
from autotune.service.worker.own_folders import own_folder


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Holds a lock with the name inside the block; the kernel drops the lock with the process.

    Raises:
        UsageError: Another process of this user holds the lock.
        HostError: The user's state folder cannot be made.
    """
    folder = own_folder("workers")
    if folder is None:
        yield
        return
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            worker = name.rpartition(" ")[2]
            raise UsageError(
                f"Worker {worker!r} runs on this machine already.", "Give this one another --slot or --name."
            ) from error
        yield
    finally:
        os.close(descriptor)
