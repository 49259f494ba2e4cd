"""Host memory of this process and its workers: at the end of a trial's window, and while a probe sees a validation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from autotune.process_memory import (
    ResidentMemory,
    forget_peak,
    held_memory_bytes,
    open_shared_bytes,
    private_bytes,
    resident_memory,
)

WORKERS_EVERY_S = 0.25
"""Between two looks at the workers of a validation, which walk their page tables."""
ROLLUP_BYTES = 1 << 14
"""More than a process's summary of its memory has."""
EVERY_STEP = 3
"""So many steps, each with a call without gradients before it, are none with a validation: it is a part of the step, as
a teacher's forward pass is."""


def held_bytes() -> int | None:
    """Anonymous and shared memory of this process and its direct children, each page counted once.

    The servers that it was forked from, if it was, share the pages of its imports, and of its beginning. None where the
    kernel does not say.
    """
    opened = os.environ.get("AUTOTUNE_SERVER_ROLLUPS", "").split()
    # With a namespace of its own this process does not see the servers, and what was opened before tells.
    servers = [] if opened else [int(pid) for pid in os.environ.get("AUTOTUNE_SERVER_PIDS", "").split()]
    rollups = [text for descriptor in opened if (text := _read(int(descriptor)))]
    return held_memory_bytes((os.getpid(), *_children()), servers=servers, rollups=rollups) or None


def _read(descriptor: int) -> bytes:
    """What the kernel says by a descriptor now; nothing where the script has closed it, or put a file in its place."""
    with suppress(OSError):
        text = os.pread(descriptor, ROLLUP_BYTES, 0)
        return text if b"[rollup]" in text else b""
    return b""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostValidation:
    """What a validation took of the host's memory."""

    peak_bytes: int
    """Most that was held."""
    growth_bytes: int
    """How much of it was more than after the step before."""


class OwnMemory:
    """Readings of this process and of the workers that it started."""

    def resident(self) -> ResidentMemory | None:
        """The process's own counters."""
        return resident_memory()

    def forget_peak(self) -> None:
        """Lets the peak begin anew."""
        forget_peak()

    def children(self) -> Sequence[int]:
        """Processes that it started."""
        return _children()

    def workers_bytes(self, pids: Sequence[int]) -> int:
        """What these of them hold beside what they share with it, batches on their way included."""
        return private_bytes(pids) + open_shared_bytes(pids)


class PassingWatch:
    """What this process holds for a moment, from here on: activations, between two steps gone, or a first step's need.

    Who looks now and then misses it; the kernel's own peak does not. What was before, imports and the script's
    preparation, is left out: a trial that was forked after it has none of it.

    Args:
        memory: Readings of this process.
    """

    def __init__(self, memory: OwnMemory | None = None) -> None:
        self._memory = memory or OwnMemory()
        self._memory.forget_peak()
        self._before = self._memory.resident()

    def most_bytes(self) -> int | None:
        """How much more it has held at its most than it does now; None where the kernel keeps no peak."""
        before, now = self._before, self._memory.resident()
        if before is None or now is None:
            return None
        return max(0, _peak_since(before, now) - now.held_bytes)


class HostValidationWatch:
    """Most memory on the host from a step to the next forward pass of training, if the model was called in between.

    Trials end before they come to a validation. The process's own peak is the kernel's, so no moment is missed; what
    the validation's workers hold is looked at now and then, and their most is added.

    Args:
        memory: Readings of this process.
        now: The monotonic clock.
    """

    def __init__(self, memory: OwnMemory | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._memory, self._now = memory or OwnMemory(), now
        self._found: HostValidation | None = None
        self._num_steps = self._num_steps_with_calls = 0
        self._is_inside = self._was_called = False
        self._workers_bytes, self._workers_at = 0, -WORKERS_EVERY_S
        self._before: ResidentMemory | None = None
        self._children_before: frozenset[int] = frozenset()

    def stepped(self, _: torch.optim.Optimizer | None = None) -> None:
        """The script has updated its parameters: what comes up to its next forward pass may be a validation."""
        self.trains()
        self._num_steps += 1
        self._num_steps_with_calls += self._was_called
        self._was_called = False
        self._begin()

    def called(self, with_gradients: bool) -> None:
        """The script calls a module: with gradients, it trains."""
        if with_gradients:
            self.trains()
            return
        if self._before is None:
            self._begin()
        self._is_inside = self._was_called = True
        if self._now() - self._workers_at >= WORKERS_EVERY_S:
            self._workers_at = self._now()
            self._look_at_workers()

    def trains(self, _: torch.Tensor | None = None) -> None:
        """The script runs a backward pass, without a module's call before it where it has none."""
        if not self._is_inside:
            return
        self._is_inside = False
        before, now = self._before, self._memory.resident()
        if before is None or now is None:
            return
        peak = max(_peak_since(before, now), now.held_bytes, before.held_bytes) + self._workers_bytes
        found = self._found or HostValidation(peak_bytes=0, growth_bytes=0)
        self._found = HostValidation(
            peak_bytes=max(found.peak_bytes, peak),
            growth_bytes=max(found.growth_bytes, peak - before.held_bytes),
        )

    def found(self) -> HostValidation | None:
        """What was found so far; None where nothing ran without gradients, or where every step does that."""
        self.trains()
        is_of_the_step = self._num_steps_with_calls == self._num_steps >= EVERY_STEP
        return None if is_of_the_step else self._found

    def _begin(self) -> None:
        self._memory.forget_peak()
        self._before = self._memory.resident()
        self._children_before = frozenset(self._memory.children())
        self._workers_bytes = 0

    def _look_at_workers(self) -> None:
        new = [pid for pid in self._memory.children() if pid not in self._children_before]
        self._workers_bytes = max(self._workers_bytes, self._memory.workers_bytes(new))


def _peak_since(before: ResidentMemory, now: ResidentMemory) -> int:
    """Most that a process held between two readings, mapped files not counted; 0 where the kernel's peak is older.

    Unless the peak is higher than at the first reading, it may be of the time before that. Of the files that came or
    went meanwhile the most is taken off.
    """
    return now.peak_bytes - max(before.file_bytes, now.file_bytes) if now.peak_bytes > before.peak_bytes else 0


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split()]
