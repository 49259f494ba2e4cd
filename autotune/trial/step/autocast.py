"""Number formats without an edit: an autocast region per step around forward and loss, closed before backward.

A region that is never left keeps the casts of the weights and the model stops learning (measured: a toy loss stayed
at 1.35 for 30 steps); so there is one region per forward-backward, opened at the root's call.
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
    """Opens at a root's call when none is open; closes at backward, at the next batch, and at a step."""

    def __init__(self, device: str, precision: Precision) -> None:
        self._device = device
        self._dtype = DTYPES[precision]
        self._region: Any = None
        """Used again for every step: to make one takes nearly as long as to enter it."""
        self._thread: int | None = None
        """The one that the open region belongs to; None when none is open."""

    def install(self, roots: Roots) -> None:
        """Attaches to the roots and to backward; the loader's and the optimizer's seam call `close` too."""
        roots.before_call.append(self.open)
        roots.around_again = lambda: torch.autocast(self._device, dtype=self._dtype)
        wrap(torch.autograd, "backward", self._wrap_backward)

    def open(self) -> None:
        """Begins the region of this step; not in a backward pass, in whose thread nobody would close it."""
        if self._thread is None and not torch_names.is_in_backward():
            if self._region is None:
                if torch_names.is_cuda_lost():
                    return  # A region asks CUDA when it is made; the script has forked a process that cannot.
                self._region = torch.autocast(self._device, dtype=self._dtype)
            self._region.__enter__()
            self._thread = threading.get_ident()

    def close(self) -> None:
        """Ends the region of this step; it belongs to the thread that opened it, and no other can end it."""
        if self._thread is not None and self._thread == threading.get_ident():
            self._thread = None
            self._region.__exit__(None, None, None)

    def _wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            self.close()
            return original(*args, **kwargs)

        return backward


def use_tf32() -> None:
    """Lets fp32 matrix products and convolutions run on TF32 units, for the whole process."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
