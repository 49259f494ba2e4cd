"""Measures the host memory of this process and its workers: after a trial's window, and in a probe's validation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.process_memory import (
    ResidentMemory,
    forget_peak,
    held_memory_bytes,
    open_shared_bytes,
    private_bytes,
    resident_memory,
)
from autotune.protocol.environment import SERVER_PIDS, SERVER_ROLLUPS

if TYPE_CHECKING:
    import torch

WORKERS_EVERY_S = 0.25
"""Seconds between readings of a validation's workers; each reading makes the kernel walk the workers' page tables."""
ROLLUP_BYTES = 1 << 14
"""A size above every process's `smaps_rollup`."""
EVERY_STEP = 3
"""Number of steps, each with a call without gradients, after which the call counts as a part of the step, like a
teacher's forward pass, and not as a validation."""


def held_bytes() -> int | None:
    """Bytes of anonymous and shared memory of this process and its direct children, each page counted once.

    A forked process shares the pages of imports and prelude with the servers above, so the shares of the servers are
    added. None when the kernel gives no figures.
    """
    opened = os.environ.get(SERVER_ROLLUPS, "").split()
    # In a separate namespace this process cannot see the servers, but inherits open descriptors of the servers' files.
    servers = [] if opened else [int(pid) for pid in os.environ.get(SERVER_PIDS, "").split()]
    rollups = [text for descriptor in opened if (text := _read(int(descriptor)))]
    return held_memory_bytes((os.getpid(), *_children()), servers=servers, rollups=rollups) or None


def _read(descriptor: int) -> bytes:
    """Reads a `smaps_rollup` by its descriptor; empty when the script has closed or replaced the descriptor."""
    with suppress(OSError):
        text = os.pread(descriptor, ROLLUP_BYTES, 0)
        return text if b"[rollup]" in text else b""
    return b""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostValidation:
    """Host memory of a validation."""

    peak_bytes: int
    """Most memory held during the validation."""
    growth_bytes: int
    """Growth of the peak over the memory held after the last training step."""


class OwnMemory:
    """Readings of this process and of its workers."""

    def resident(self) -> ResidentMemory | None:
        """The kernel's counters of this process; None when the kernel keeps none."""
        return resident_memory()

    def forget_peak(self) -> None:
        """Resets the kernel's peak of this process."""
        forget_peak()

    def children(self) -> Sequence[int]:
        """Ids of the processes started by this process."""
        return _children()

    def workers_bytes(self, pids: Sequence[int]) -> int:
        """Bytes that these workers hold beyond the pages shared with this process, with batches in transit."""
        return private_bytes(pids) + open_shared_bytes(pids)


class PassingWatch:
    """Measures memory that this process holds only briefly, such as activations or the needs of a first step.

    The kernel's peak is read, because readings at intervals would miss short moments. The peak starts anew with this
    object, without the peaks of imports and preparation: a trial forked later never reaches those.

    Args:
        memory: Readings of this process.
    """

    def __init__(self, memory: OwnMemory | None = None) -> None:
        self._memory = memory or OwnMemory()
        self._memory.forget_peak()
        self._before = self._memory.resident()

    def most_bytes(self) -> int | None:
        """Bytes by which the peak exceeds the memory held now; None when the kernel keeps no peak."""
        before, now = self._before, self._memory.resident()
        if before is None or now is None:
            return None
        return max(0, _peak_since(before, now) - now.held_bytes)


class HostValidationWatch:
    """Measures the host memory of a validation: calls without gradients between a step and the next training pass.

    Trials end before the script's validation. The peak of the process is the kernel's, so no moment is missed. The
    memory of the validation's workers is read every WORKERS_EVERY_S, and the highest reading is added.

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
        """Notes an update of the parameters; a validation may follow."""
        self.trains()
        self._num_steps += 1
        self._num_steps_with_calls += self._was_called
        self._was_called = False
        self._begin()

    def called(self, with_gradients: bool) -> None:
        """Notes a call of a module; a call with gradients ends a validation."""
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
        """Notes a backward pass, and ends a validation; a script without modules has no call to note."""
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
        """The validations so far; None when nothing ran without gradients, or when every step does."""
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
    """Peak bytes of a process between two readings without mapped files; 0 when the peak may be older.

    A peak that did not rise since the first reading may stem from an earlier time. The larger of the two sizes of
    mapped files is subtracted.
    """
    return now.peak_bytes - max(before.file_bytes, now.file_bytes) if now.peak_bytes > before.peak_bytes else 0


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split()]
