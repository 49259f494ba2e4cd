"""The losses of a trial: the first ones, what they follow from, and whether one in the window was not finite."""

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
"""Of a window's losses that are on a device the first so many are looked at, and then, where steps are short, one in so
many: to add each to a sum there, one more kernel, took 27 us of every step on an H200. A step by a loss that is not
finite leaves weights that make all later ones so. An odd prime, so that of a script with several losses per step it is
not always the same one's turn."""
LONG_STEP_S = 0.009
"""Where a backward pass comes every so many seconds or less often, every loss is looked at: 27 us are 0.3 % of that."""
MAX_DIGEST_TENSORS = 32
MAX_DIGEST_BYTES = 1 << 18
"""Of each tensor: runs that begin with other random numbers differ everywhere."""


class LossWatch:
    """Sees every loss that the script runs backward from.

    Args:
        steps: Knows the parameters, and tells of backward passes.
        roots: Tell when the first forward pass begins.
        now: A clock in seconds.
    """

    def __init__(self, steps: Steps, roots: Roots, now: Callable[[], float] = time.perf_counter) -> None:
        self._steps, self._roots, self._now = steps, roots, now
        self._is_measuring = False
        self._is_at_start = True
        """Whether first losses are still to be noted."""
        self._first: list[torch.Tensor] = []
        self._num_steps = self._num_skipped = self._num_at_step = 0
        """Steps done and skipped when the last loss came, and first losses that had been seen when a step was done."""
        self._has_begun = False
        """Whether a loss was seen."""
        self._last: torch.Tensor | None = None
        """The last loss outside the window."""
        self._total: complex = 0.0
        """Sum of the window's losses that are on the host: one that is not finite makes it so for good."""
        self._totals: dict[torch.device, torch.Tensor] = {}
        """The same of those that are on a device, on that device."""
        self._num_on_device = 0
        """Of the window's losses, those that were looked at there."""
        self._began, self._num_backwards = 0.0, 0
        """Time at which the window began, and backward passes by then."""
        self._batch_digest: int | None = None
        self._weights_digest: int | None = None
        self._random_state: list[torch.Tensor] | None = None
        """Before the first forward pass; None when it has begun unseen."""

    def install(self) -> None:
        """Attaches to the first forward pass and to all backward passes."""
        self._roots.prepare.append(self._before_forward)
        self._steps.on_backward.append(self._backward)

    def measure(self, is_on: bool) -> None:
        """Says whether the window runs from now on: there no loss may be other than finite."""
        self._is_measuring = is_on
        self._num_on_device = 0
        if is_on:
            self._last = None
            self._began, self._num_backwards = self._now(), self._steps.num_backwards
        else:
            self._steps.let_pass(0)

    def first_batch(self, batch: Any) -> None:
        """Notes the batch that the first steps are made with."""
        self._batch_digest = digest(tensors_of(batch))

    @property
    def first_losses(self) -> tuple[float, ...]:
        """Losses of the first backward passes, without those of skipped steps; one that is not finite ends them."""
        values = [float(loss) for loss in self._first]
        num_finite = next((i for i, value in enumerate(values) if not math.isfinite(value)), len(values))
        return tuple(values[:num_finite])

    @property
    def is_finite(self) -> bool:
        """Whether the last loss and all losses of the window are finite; waits for the device."""
        seen = [*self._totals.values(), *([self._last] if self._last is not None else [])]
        return cmath.isfinite(self._total) and all(bool(torch.isfinite(value).all()) for value in seen)

    @property
    def start_digest(self) -> str | None:
        """What the first losses follow from: initial weights and first batch.

        None where one of them was not seen, or where the forward pass draws random numbers: another number format then
        draws others.
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
            self._last = loss.data  # Half of what `detach` costs.
            return
        if loss.is_cpu:
            # A number costs a fifth of what a sum of tensors does, on the path of every step.
            try:
                self._total += loss.item()
            except (RuntimeError, ValueError):  # more than one element, whose sum half precision may not hold
                self._total += _sum_of(loss.data, torch.float64).item()
            return
        self._num_on_device += 1
        if self._num_on_device >= DEVICE_STRIDE and not self._is_at_start:
            self._steps.let_pass(self._stride())
        self._add_on_device(loss.data)

    def _stride(self) -> int:
        """Backward passes until the next loss that is looked at on a device.

        By how long those of the window took on average: the host may be steps ahead of the device, and one of them then
        takes it no time.
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
            self._is_at_start = len(self._first) < NUM_FIRST_LOSSES

    def _drop_skipped(self) -> None:
        """Losses of a step that the scaler skipped come again: under fp16 the first steps go into finding the scale."""
        steps = self._steps
        if steps.num_steps != self._num_steps:
            self._num_at_step = len(self._first)
        elif steps.num_skipped != self._num_skipped:
            del self._first[self._num_at_step :]
        self._num_steps, self._num_skipped = steps.num_steps, steps.num_skipped

    def _note_start(self) -> None:
        before, self._random_state = self._random_state, None
        now = _random_state()
        if before is not None and len(before) == len(now) and all(map(torch.equal, before, now)):
            self._weights_digest = digest(self._steps.parameters())


def _sum_of(loss: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Of absolute values, which real and complex losses have alike, in a format that holds those of the loss's own."""
    return loss.abs().sum(dtype=dtype)


def digest(tensors: list[torch.Tensor]) -> int | None:
    """A checksum of the beginnings of some tensors, whatever their memory format; None where they cannot be read."""
    checksum = 0
    try:
        for tensor in tensors[:MAX_DIGEST_TENSORS]:
            num = max(1, MAX_DIGEST_BYTES // max(1, tensor.element_size()))
            values = tensor.detach().reshape(-1)[:num].cpu().contiguous()
            checksum = zlib.crc32(values.view(torch.uint8).numpy().tobytes(), checksum)
            checksum = zlib.crc32(str(tuple(tensor.shape)).encode(), checksum)
    except (RuntimeError, TypeError):
        # Sharded, sparse, quantised: parity is not claimed then.
        return None
    return checksum


def _random_state() -> list[torch.Tensor]:
    """States of the generators that a forward pass draws from."""
    states = [torch.get_rng_state()]
    if torch_names.is_cuda_on():
        states.append(torch.cuda.get_rng_state())
    return states
