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
from autotune.trial import torch_names
from autotune.trial.patching import wrap
from autotune.trial.roots import Roots

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
        wrap(torch.autograd, "backward", self._wrap_backward)

    def open(self) -> None:
        """Begins the region of this step."""
        if self._thread is None:
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


WEIGHTY = (
    torch.nn.Linear,
    torch.nn.Conv1d,
    torch.nn.Conv2d,
    torch.nn.Conv3d,
    torch.nn.ConvTranspose1d,
    torch.nn.ConvTranspose2d,
    torch.nn.ConvTranspose3d,
    torch.nn.RNNBase,
)
"""Layers whose products autocast runs in the lower format."""


class OperandWitness:
    """Sees in which format the model really computes: dtype of a weighty module's output in a forward pass."""

    def __init__(self) -> None:
        self.dtype: torch.dtype | None = None
        self._hook: Any = None

    def attach(self, root: torch.nn.Module) -> None:
        """Looks at the first weighty layer of a root that trains, or at the first one of all, once."""
        if self._hook is not None or torch.compiler.is_compiling():
            return
        layers = [part for part in root.modules() if isinstance(part, WEIGHTY)]
        training = (layer for layer in layers if any(weight.requires_grad for weight in layer.parameters()))
        module = next(training, layers[0] if layers else None)
        if module is not None:
            self._hook = module.register_forward_hook(self._see)

    def _see(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, tuple) and output:
            output = output[0]  # of a recurrent layer, before its state
        if torch.is_grad_enabled() and isinstance(output, torch.Tensor):
            self.dtype = output.dtype
            if not torch.compiler.is_compiling():
                # Within a graph it stays: taking it off there would break the graph, and without a word leave a root of
                # torch's own classes uncompiled; taking it off later would build it anew. Noting a type costs nothing.
                self._hook.remove()

    @property
    def precision(self) -> Precision | None:
        """The precision in force, None where nothing was seen."""
        if self.dtype is None:
            return None
        for precision, dtype in DTYPES.items():
            if dtype is self.dtype:
                return precision
        is_tf32 = torch_names.is_cuda_on() and torch_names.allows_tf32()
        return Precision.TF32 if is_tf32 else Precision.FP32
