"""Runs forward and loss of each step in an autocast region, without an edit of the script.

Every step gets its own region, opened at the root's call and closed before backward. A region that stays open keeps
the cast weights, and the model stops learning (measured: a toy loss stayed at 1.35 for 30 steps).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from autotune.settings import Precision
from autotune.trial.step.roots import Roots
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap

DTYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


class AutocastRegion:
    """The autocast region of a step: opened at the first call of a root, closed at backward, next batch or step."""

    def __init__(self, device: str, precision: Precision) -> None:
        self._device = device
        self._dtype = DTYPES[precision]
        self._region: Any = None
        """A single object for all steps, since building a region takes nearly as long as entering a region."""
        self._thread: int | None = None
        """The thread of the open region; None while the region is closed."""

    def install(self, roots: Roots) -> None:
        """Attaches to the roots and to backward; the seams of loader and optimizer call `close` as well."""
        roots.before_call.append(self.open)
        roots.around_again = lambda: torch.autocast(self._device, dtype=self._dtype)
        wrap(torch.autograd, "backward", self._wrap_backward)

    def open(self) -> None:
        """Opens the region of this step, except in the thread of a backward pass, where nothing would close it."""
        if self._thread is None and not torch_names.is_in_backward():
            if self._region is None:
                if torch_names.is_cuda_lost():
                    return  # Building a region asks CUDA, and this forked process of the script cannot use CUDA.
                self._region = torch.autocast(self._device, dtype=self._dtype)
            self._region.__enter__()
            self._thread = threading.get_ident()

    def close(self) -> None:
        """Closes the region of this step in the thread that opened the region; does nothing in other threads."""
        if self._thread is not None and self._thread == threading.get_ident():
            self._thread = None
            self._region.__exit__(None, None, None)

    def _wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            self.close()
            return original(*args, **kwargs)

        return backward


def use_tf32() -> Callable[[], None]:
    """Lets fp32 matrix products and convolutions run on TF32 units, for the whole process; returns the way back."""
    before = torch_names.accuracy_of_products(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True

    def undo() -> None:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]

    return undo
