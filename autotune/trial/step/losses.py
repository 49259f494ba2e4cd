"""Watches the losses of a trial: the first losses, their starting point, and whether all losses are finite."""

from __future__ import annotations

import cmath
import math
import time
import zlib
from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.step.roots import Roots
from autotune.trial.step.steps import Steps
from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import tensors_of

NUM_FIRST_LOSSES = 8
DEVICE_STRIDE = 7
"""Number of a window's first losses on a device to check; with short steps every DEVICE_STRIDE-th loss follows.

Adding a loss to a sum on the device, one more kernel, took 27 us of every step on an H200. A sparse check suffices.
After a step with a loss that is not finite the weights, and all later losses, are not finite either. A gradient scaler
may skip the step, and skipped steps are counted elsewhere. The number is an odd prime, so that a script with several
losses per step has each loss checked in turn."""
LONG_STEP_S = 0.009
"""Seconds between backward passes from which every loss is checked: 27 us are 0.3 % of such a step."""
MAX_NOTED_BATCHES = 64
"""Most batches with a digest: a script may read a whole epoch before training."""
MAX_DIGEST_TENSORS = 32
MAX_DIGEST_BYTES = 1 << 18
"""Bytes of each tensor in a digest; a beginning suffices, since runs with different seeds differ everywhere."""


class LossWatch:
    """Watches the losses of the script's backward passes.

    Args:
        steps: Gives the parameters, and calls a listener at backward passes.
        roots: Call a listener before the first forward pass.
        now: A clock in seconds.
    """

    def __init__(self, steps: Steps, roots: Roots, now: Callable[[], float] = time.perf_counter) -> None:
        self._steps, self._roots, self._now = steps, roots, now
        self._is_measuring = False
        self._is_at_start = True
        """Whether more first losses are to be noted."""
        self._first: list[torch.Tensor] = []
        self._num_steps = self._num_skipped = self._num_at_step = 0
        """Steps done and steps skipped at the last loss, and the number of first losses at the last done step."""
        self._has_begun = False
        """Whether a first loss was noted."""
        self._last: torch.Tensor | None = None
        """The last loss outside the window."""
        self._total: complex = 0.0
        """Sum of the window's losses on the host; a loss that is not finite makes the sum not finite for good."""
        self._totals: dict[torch.device, torch.Tensor] = {}
        """Sums of the window's checked losses on devices, each on its device."""
        self._num_on_device = 0
        """Number of the window's losses that were checked on a device."""
        self._began, self._num_backwards = 0.0, 0
        """Time in seconds and number of backward passes at the beginning of the window."""
        self._first_batches: list[int] = []
        """For each of the first losses a checksum of the batches before it, up to the first unseen batch."""
        self._batches: int | None = 0
        """Checksum of the batches so far; None after a batch that went unseen."""
        self._num_batches = 0
        """Number of batches with a digest."""
        self._latest_batch: int | None = None
        """Digest of the latest batch."""
        self._batch_digest: int | None = None
        self._weights_digest: int | None = None
        self._random_state: list[torch.Tensor] | None = None
        """State of the generators before the first forward pass; None when the pass began unseen."""

    def install(self) -> None:
        """Attaches to the first forward pass and to all backward passes."""
        self._roots.prepare.append(self._before_forward)
        self._steps.on_backward.append(self._backward)

    def measure(self, is_on: bool) -> None:
        """Begins the window when `is_on`, else ends the window; all losses within the window must be finite."""
        self._is_measuring = is_on
        self._num_on_device = 0
        if is_on:
            self._last = None
            self._began, self._num_backwards = self._now(), self._steps.num_backwards
        else:
            self._steps.let_pass(0)

    def next_batch(self, batch: Any) -> None:
        """Notes a batch of the training loader, before the script gets the batch; the first is a part of the start.

        The first losses of two trials can be compared while both have had the same batches. Repeats of a batch count
        once: how often a trial repeats its first batch depends on times.
        """
        if not self._is_at_start or self._batches is None:
            return
        found = digest(tensors_of(batch))
        self._num_batches += 1
        if self._num_batches == 1:
            self._batch_digest = found
        if found is None or self._num_batches > MAX_NOTED_BATCHES:
            self.next_batches_unseen()
        elif found != self._latest_batch:
            self._latest_batch = found
            self._batches = zlib.crc32(found.to_bytes(4, "big"), self._batches)

    def next_batches_unseen(self) -> None:
        """Leaves the batches unknown from here on; later losses cannot be compared."""
        self._batches = None

    @property
    def first_losses(self) -> tuple[float, ...]:
        """Losses of the first backward passes without skipped steps, up to the first loss that is not finite."""
        values = [float(loss) for loss in self._first]
        num_finite = next((i for i, value in enumerate(values) if not math.isfinite(value)), len(values))
        return tuple(values[:num_finite])

    @property
    def first_batches(self) -> tuple[int, ...]:
        """For each of the first losses a checksum of the batches before it, up to the first unseen batch."""
        return tuple(self._first_batches[: len(self.first_losses)])

    @property
    def is_finite(self) -> bool:
        """Whether the last loss and all losses of the window are finite; waits for the device."""
        values = [*self._totals.values(), *([self._last] if self._last is not None else [])]
        return cmath.isfinite(self._total) and all(bool(torch.isfinite(value).all()) for value in values)

    @property
    def start_digest(self) -> str | None:
        """A checksum of initial weights and first batch, the starting point of the first losses.

        None when weights or batch were not seen, or when the forward pass draws random numbers: another number format
        then draws different numbers.
        """
        if self._batch_digest is None or self._weights_digest is None:
            return None
        return f"{self._weights_digest:08x}-{self._batch_digest:08x}"

    def _before_forward(self, _: torch.nn.Module) -> None:
        if not self._has_begun:
            self._random_state = _random_state()

    def _backward(self, loss: torch.Tensor | None) -> None:
        if loss is None:
            return
        if self._is_at_start:
            self._note_first(loss.data)
        if not self._is_measuring:
            self._last = loss.data  # Takes half the time of `detach`.
            return
        if loss.is_cpu:
            # Adding a number takes a fifth of the time of adding a tensor, on the path of every step.
            try:
                self._total += loss.item()
            except (RuntimeError, ValueError):  # more than one element; the sum may overflow in half precision
                self._total += _sum_of(loss.data, torch.float64).item()
            return
        self._num_on_device += 1
        if self._num_on_device >= DEVICE_STRIDE and not self._is_at_start:
            self._steps.let_pass(self._stride())
        self._add_on_device(loss.data)

    def _stride(self) -> int:
        """Backward passes until the next loss to check on a device.

        The average time of the window's backward passes decides, because a single pass takes the host no time while
        the host runs steps ahead of the device.
        """
        num_backwards = self._steps.num_backwards - self._num_backwards
        return 1 if self._now() - self._began >= LONG_STEP_S * num_backwards else DEVICE_STRIDE

    def _add_on_device(self, loss: torch.Tensor) -> None:
        if loss.dim() or loss.is_complex():
            loss = _sum_of(loss, torch.float32)
        total = self._totals.get(loss.device)
        if total is None:
            total = self._totals[loss.device] = torch.zeros((), device=loss.device)
        total.add_(loss)

    def _note_first(self, loss: torch.Tensor) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._note_start()
        if loss.numel() == 1:
            self._drop_skipped()
            self._first.append(loss.real.clone() if loss.is_complex() else loss.clone())
            if self._batches is not None:
                self._first_batches.append(self._batches)
            self._is_at_start = len(self._first) < NUM_FIRST_LOSSES

    def _drop_skipped(self) -> None:
        """Drops the losses of a step that the scaler skipped: under fp16 the first steps search for the scale."""
        steps = self._steps
        if steps.num_steps != self._num_steps:
            self._num_at_step = len(self._first)
        elif steps.num_skipped != self._num_skipped:
            del self._first[self._num_at_step :], self._first_batches[self._num_at_step :]
        self._num_steps, self._num_skipped = steps.num_steps, steps.num_skipped

    def _note_start(self) -> None:
        before, self._random_state = self._random_state, None
        now = _random_state()
        if before is not None and len(before) == len(now) and all(map(torch.equal, before, now)):
            self._weights_digest = digest(self._steps.parameters())


def _sum_of(loss: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sum of the absolute values of a real or complex loss, in a format wide enough for the loss's own format."""
    return loss.abs().sum(dtype=dtype)


def digest(tensors: list[torch.Tensor]) -> int | None:
    """A checksum of the beginnings of the first tensors, equal for all memory formats; None for unreadable tensors."""
    checksum = 0
    try:
        for tensor in tensors[:MAX_DIGEST_TENSORS]:
            num = max(1, MAX_DIGEST_BYTES // max(1, tensor.element_size()))
            values = tensor.detach().reshape(-1)[:num].cpu().contiguous()
            checksum = zlib.crc32(values.view(torch.uint8).numpy().tobytes(), checksum)
            checksum = zlib.crc32(str(tuple(tensor.shape)).encode(), checksum)
    except (RuntimeError, TypeError):
        # Sharded, sparse or quantised tensors: without a digest no parity is claimed.
        return None
    return checksum


def _random_state() -> list[torch.Tensor]:
    """States of the random generators of a forward pass."""
    states = [torch.get_rng_state()]
    if torch_names.is_cuda_on():
        states.append(torch.cuda.get_rng_state())
    return states
