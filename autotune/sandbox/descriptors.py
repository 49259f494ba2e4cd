"""Waiting for descriptors with any number. Standard library only: the supervisor loads this."""

from __future__ import annotations

import select


def readable(*descriptors: int, limit_s: float | None = None) -> list[int]:
    """The descriptors that can be read without a wait, or are at their end; empty at the time limit.

    `select.select` refuses numbers from 1024 on, and a trial may be forked from a script with as many open files.

    Args:
        descriptors: Open descriptors.
        limit_s: Longest wait; None = until a descriptor can be read.
    """
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poller.poll(None if limit_s is None else 1000 * limit_s)]
