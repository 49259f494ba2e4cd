"""Limits, watches and reads CUDA's caching allocator in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from autotune.measure.block import Phase
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap

THRASHING_BLOCKS = 2
"""Blocks with retries in a row that mean thrashing; a single block may be the last growth of a cache."""


def num_page_locked() -> int | None:
    """Number of blocks of page-locked memory allocated so far; None without CUDA or without torch's count."""
    stats = getattr(torch.cuda, "host_memory_stats_as_nested_dict", None)
    if stats is None or not torch_names.is_cuda_on():
        return None
    count = stats().get("num_host_alloc")
    return count if isinstance(count, int) else None


class AllocatorWatch:
    """Reads the allocator at the end of each block and at the end of the trial; never initialises CUDA."""

    def __init__(self) -> None:
        self._num_retries = 0
        self._num_in_a_row = 0
        self._is_near_cap = False
        self._peak_allocated = self._peak_reserved = 0
        self._num_window_retries = 0
        self._window_allocated: int | None = None
        """Peak of allocated memory since the first real batches; None before."""

    def install(self) -> None:
        """Notes the peaks before each reset by the script, so that the first step and the optimizer state count."""
        for module in (torch.cuda, torch.cuda.memory, getattr(torch, "accelerator", None)):
            if hasattr(module, "reset_peak_memory_stats"):
                wrap(module, "reset_peak_memory_stats", self._keep_peaks_before)

    def block_ended(self, phase: Phase) -> None:
        """Notes whether the allocator freed its cache and asked the device again since the last block."""
        if not torch_names.is_cuda_on():
            return
        num_retries = _num_retries()
        is_thrashing = phase is Phase.WINDOW and num_retries > self._num_retries
        self._num_window_retries += num_retries - self._num_retries if is_thrashing else 0
        if phase in (Phase.RAMP, Phase.WINDOW) and self._window_allocated is None:
            # The benchmark of kernels allocates more than any later step.
            self._note_peaks()
            torch.cuda.reset_peak_memory_stats()
            self._window_allocated = 0
        self._num_retries = num_retries
        self._num_in_a_row = self._num_in_a_row + 1 if is_thrashing else 0
        self._is_near_cap = self._is_near_cap or self._num_in_a_row >= THRASHING_BLOCKS

    def begin_anew(self) -> None:
        """Frees cached memory and forgets all peaks so far, for a first step that does not count."""
        forget_peaks()  # Notes the peaks first, as before each reset.
        self._peak_allocated = self._peak_reserved = self._num_retries = 0
        self._window_allocated = None

    def figures(self) -> dict[str, Any]:
        """The allocator's part of the report; empty without CUDA, and after an error that lost the device."""
        if not torch_names.is_cuda_on():
            return {}
        try:
            self._note_peaks()
            return {
                "peak_allocated_bytes": self._peak_allocated,
                "peak_reserved_bytes": self._peak_reserved,
                "reserved_bytes": torch.cuda.memory_reserved(),
                "device_free_bytes": torch.cuda.mem_get_info()[0],
                "num_alloc_retries": _num_retries(),
                "num_window_retries": self._num_window_retries,
                "window_allocated_bytes": self._window_allocated,
                "is_near_cap": self._is_near_cap,
            }
        except RuntimeError:
            return {}

    def _note_peaks(self) -> None:
        allocated = torch.cuda.max_memory_allocated()
        self._peak_allocated = max(self._peak_allocated, allocated)
        if self._window_allocated is not None:
            self._window_allocated = max(self._window_allocated, allocated)
        self._peak_reserved = max(self._peak_reserved, torch.cuda.max_memory_reserved())

    def _keep_peaks_before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def reset(*args: Any, **kwargs: Any) -> Any:
            if torch_names.is_cuda_on():
                self._note_peaks()
            return original(*args, **kwargs)

        return reset


def forget_peaks() -> None:
    """Frees cached memory and begins all figures anew: the next window has new peaks."""
    if torch_names.is_cuda_on():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()


class ValidationWatch:
    """Measures the peak memory of calls without gradients, since trials end before the script's validation.

    An AllocatorWatch must be installed: a ValidationWatch resets the peaks, and the AllocatorWatch notes them first.
    """

    def __init__(self) -> None:
        self._peak_bytes = 0
        self._is_inside = False

    def called(self, with_gradients: bool) -> None:
        """Notes a call of a module; a call with gradients ends a validation."""
        if with_gradients:
            self.trains()
        elif not self._is_inside and torch_names.is_cuda_on():
            self._is_inside = True
            torch.cuda.reset_peak_memory_stats()

    def trains(self, _: torch.Tensor | None = None) -> None:
        """Notes a backward pass, and ends a validation; a script without modules has no call to note."""
        if self._is_inside:
            self._is_inside = False
            self._peak_bytes = max(self._peak_bytes, torch.cuda.max_memory_allocated())

    def peak_bytes(self) -> int | None:
        """The peak so far; None when nothing ran without gradients on CUDA."""
        self.trains()
        return self._peak_bytes or None


def limit_share(fraction: float) -> Callable[[], None]:
    """Limits the allocator of the process's first CUDA device, and of each device that becomes current later.

    A rank may choose its device after CUDA has started, and each device has a separate allocator.

    Returns:
        The way back to no limit.
    """
    limited: set[int] = set()
    set_fraction = torch.cuda.set_per_process_memory_fraction  # Taken before a probe wraps the function.

    def limit(index: int) -> None:
        if index not in limited:
            limited.add(index)
            set_fraction(fraction, index)

    def and_limit(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_device(device: Any) -> None:
            original(device)
            if torch_names.is_cuda_on():
                limit(torch.cuda.current_device())

        return set_device

    torch_names.call_when_cuda_starts(lambda: limit(_first_device()))
    wrap(torch.cuda, "set_device", and_limit)

    def undo() -> None:
        while limited:
            set_fraction(1.0, limited.pop())

    return undo


def _first_device() -> int:
    """The device that the launcher names for this rank, or the current device: some scripts never set the latter."""
    local_rank = os.environ.get("LOCAL_RANK", "")
    if local_rank.isdigit() and int(local_rank) < torch.cuda.device_count():
        return int(local_rank)
    return torch.cuda.current_device()


def _num_retries() -> int:
    return int(torch.cuda.memory_stats_as_nested_dict().get("num_alloc_retries", 0))
