"""Estimates the device memory of a training at any micro-batch, from the parts seen at one micro-batch. Pure.

Parameters and the optimizer's state stay. At the end of a forward pass the activations come on top; at the end of a
backward pass, the gradients and the work of the optimizer. The larger of both is the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_RATIO = 1.0
"""Work of an optimizer over its parameters, in copies of the gradients: torch's usual form makes one copy."""
LEAST_RATIO, MOST_RATIO = 0.5, 2.5
"""Bounds of the measured memory of a forward pass over the activations kept: views may share memory, and passing memory
comes on top. Without a benchmark of kernels the upper bound falls: later batches may be many times as long as the
first batch."""
ROOM_RATIO = 1.05
"""Reserved over allocated memory: the allocator leaves gaps between blocks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryParts:
    """Device memory of a training on one rank, in bytes, as seen at one micro-batch."""

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    saved_bytes: int
    """Activations kept for the backward pass of one micro-batch."""
    batch_size: int
    """Samples of this micro-batch, at least 1."""
    peak_bytes: int | None = None
    """Peak of allocated memory at this micro-batch; None without a measurement, as on a CPU."""
    other_bytes: int = 0
    """Memory independent of the micro-batch: data on the device, buffers, workspaces of CUDA's libraries."""
    benchmarks_kernels: bool = False
    """Whether a benchmark of kernels, with workspaces of any size, may have made the measured peak."""
    keeps_gradients: bool = False
    """Whether gradients of earlier micro-batches are kept in a forward pass."""

    def __post_init__(self) -> None:
        """Refuses impossible parts."""
        amounts = (self.parameter_bytes, self.gradient_bytes, self.optimizer_bytes, self.saved_bytes, self.other_bytes)
        if self.batch_size < 1 or min(amounts) < 0:
            raise ValueError(f"impossible parts of memory: {self}")

    @property
    def forward_ratio(self) -> float:
        """Memory of a forward pass over the activations kept; 1 where the peak does not tell."""
        if self.peak_bytes is None or not self.saved_bytes or self.peak_bytes <= self._step_bytes * 1.02:
            return 1.0
        measured = (self.peak_bytes - self.fixed_bytes) / self.saved_bytes
        return max(LEAST_RATIO, min(measured, MOST_RATIO) if self.benchmarks_kernels else measured)

    @property
    def activation_bytes(self) -> float:
        """Memory of the activations of one sample."""
        return self.forward_ratio * self.saved_bytes / self.batch_size

    def peak_at(self, batch_size: int) -> int:
        """Peak of allocated memory at a micro-batch."""
        return round(max(self._step_bytes, self.fixed_bytes + self.activation_bytes * batch_size))

    def largest_batch(self, usable_bytes: int) -> int | None:
        """The largest micro-batch within so much memory of the allocator; 0 if none fits, None if memory does not grow.

        Args:
            usable_bytes: Memory for the allocator, gaps between blocks included.
        """
        allocated = usable_bytes / ROOM_RATIO
        if self._step_bytes > allocated:
            return 0
        if not self.activation_bytes:
            return None
        return max(0, int((allocated - self.fixed_bytes) / self.activation_bytes))

    @property
    def fixed_bytes(self) -> int:
        """Allocated memory of a forward pass that does not grow with the micro-batch."""
        gradients = self.gradient_bytes if self.keeps_gradients else 0
        return self.parameter_bytes + self.optimizer_bytes + gradients + self.other_bytes

    @property
    def _step_bytes(self) -> int:
        """Memory while the optimizer steps."""
        work = round(STEP_RATIO * self.gradient_bytes) if self.optimizer_bytes else 0
        return self.parameter_bytes + self.optimizer_bytes + self.gradient_bytes + work + self.other_bytes
