"""The tuned number format of forward passes, for scripts that call `Config.autocast`.

Imported when the first region is asked for, because it needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from autotune.errors import ConfigError
from autotune.settings import Precision

DTYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}

MAX_UNSCALED_PASSES = 16
"""Number of forward passes without a scaled loss after which the script counts as a script without calls of `backward`.
Fewer passes may be a try of the model before the training."""


class ForwardFormat:
    """Regions for forward passes and their losses, in sequence.

    Args:
        precision: The format.
        device_type: Gives the type of the training device; called once, for the first region.
    """

    def __init__(self, precision: Precision, device_type: Callable[[], str]) -> None:
        self._precision = precision
        self._dtype = DTYPES.get(precision)
        self._device_type = device_type() if self._dtype is not None else ""
        self._num_unscaled = 0
        """Forward passes in float16 before the first scaled loss."""

    @property
    def needs_scaling(self) -> bool:
        """Whether small gradients vanish unless the loss is scaled."""
        return self._precision is Precision.FP16

    def in_force(self) -> Precision:
        """The format in force: torch leaves autocast off on devices without the format."""
        if self._dtype is None:
            return self._precision
        with torch.autocast(self._device_type, dtype=self._dtype):
            return self._precision if torch.is_autocast_enabled(self._device_type) else Precision.FP32

    def region(self, *, is_scaled: bool) -> AbstractContextManager[Any]:
        """A region for one forward pass and its loss.

        Args:
            is_scaled: Losses are scaled against underflow of float16.

        Raises:
            ConfigError: Losses in float16 are not scaled.
        """
        if self._dtype is None:
            use_tf32(self._precision)
            return nullcontext()
        if self.needs_scaling and not is_scaled:
            self._note_unscaled()
        return torch.autocast(self._device_type, dtype=self._dtype)

    def _note_unscaled(self) -> None:
        if not torch.is_grad_enabled():
            return
        self._num_unscaled += 1
        if self._num_unscaled > MAX_UNSCALED_PASSES:
            raise ConfigError(
                f"fp16 ran for {MAX_UNSCALED_PASSES} forward passes without cfg.backward, which scales the loss.",
                "Hand the loss to cfg.backward(loss, optimizer), or leave fp16 out: --set precision=fp32,tf32,bf16.",
            )


def use_tf32(precision: Precision) -> None:
    """Lets the whole process use TF32 when TF32 is the format; with any different format nothing changes."""
    if precision is Precision.TF32:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
