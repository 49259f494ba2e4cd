"""Counts and times calls that bring a tensor's value to Python, by place in the user's code.

On CUDA each call waits for all queued work, and the device then waits for new work. On a CPU nothing waits; only the
Python code around the calls takes time.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.observing.user_code import Stack, is_torchs, users_stack

NAMES = (
    "item",
    "tolist",
    "cpu",
    "numpy",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "__repr__",
    "__format__",
    "nonzero",
)
"""Methods that need a tensor's value. `x.to('cpu')` is left out, since such a copy may not wait; most scripts write
`x.cpu()`."""
SHOWN = {
    "__bool__": "bool(tensor)",
    "__float__": "float(tensor)",
    "__int__": "int(tensor)",
    "__repr__": "print(tensor)",
}


class SyncCalls:
    """Counts and times calls between `attach` and `detach`.

    Args:
        device: Type of the training device; with an accelerator, calls on CPU tensors are not counted.
    """

    def __init__(self, device: str) -> None:
        self.counts: dict[tuple[Stack, str], int] = defaultdict(int)
        """Number of calls by stack of the user's lines and name of the method."""
        self.seconds: dict[tuple[Stack, str], float] = defaultdict(float)
        self._device = device
        self._is_inside = False
        self._restore: list[Callable[[], None]] = []

    def attach(self) -> None:
        """Wraps the methods of tensors."""
        for name in NAMES:
            self._wrap(name)

    def detach(self) -> None:
        """Restores the methods."""
        while self._restore:
            self._restore.pop()()

    def _wrap(self, name: str) -> None:
        cls: Any = torch.Tensor
        original: Any = getattr(cls, name)
        own = vars(cls).get(name)
        shown = SHOWN.get(name, f"Tensor.{name}")

        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return original(tensor, *args, **kwargs)
            if self._device != "cpu" and tensor.device.type == "cpu":
                return original(tensor, *args, **kwargs)
            caller = sys._getframe(1)
            if is_torchs(caller.f_code):
                # torch itself needs some values, such as an optimizer's count of steps; no user's line is to blame.
                return original(tensor, *args, **kwargs)
            self._is_inside = True
            began = time.perf_counter()
            try:
                return original(tensor, *args, **kwargs)
            finally:
                elapsed_s = time.perf_counter() - began
                key = (users_stack(caller), shown)
                self.counts[key] += 1
                self.seconds[key] += elapsed_s
                self._is_inside = False

        setattr(cls, name, call)

        def restore() -> None:
            if own is None:
                delattr(cls, name)  # the method of the base class shows again
            else:
                setattr(cls, name, own)

        self._restore.append(restore)
