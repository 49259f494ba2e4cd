"""Calls that bring a tensor's value to Python: how many a step makes, where, and how long they take.

On CUDA each waits until the device has done all that was asked of it, and the device then waits for the next order.
On a CPU nothing is waited for; what counts there is the Python around them.
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
"""Methods of a tensor that need its value. `x.to('cpu')` comes as `cpu` in most scripts, and is left out otherwise: it
may as well be a copy that does not wait."""
SHOWN = {
    "__bool__": "bool(tensor)",
    "__float__": "float(tensor)",
    "__int__": "int(tensor)",
    "__repr__": "print(tensor)",
}


class SyncCalls:
    """Counts while it is attached.

    Args:
        device: Type of the device that trains: on an accelerator calls on other tensors wait for nothing.
    """

    def __init__(self, device: str) -> None:
        self.counts: dict[tuple[Stack, str], int] = defaultdict(int)
        """By the user's lines that led there, and what was called."""
        self.seconds: dict[tuple[Stack, str], float] = defaultdict(float)
        self._device = device
        self._is_inside = False
        self._restore: list[Callable[[], None]] = []

    def attach(self) -> None:
        """Wraps the methods of tensors."""
        for name in NAMES:
            self._wrap(name)

    def detach(self) -> None:
        """Puts everything back."""
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
                # torch's own need of a value, as an optimizer's of its count of steps, is no line of the user's.
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
                delattr(cls, name)  # it came from the base class, and does again
            else:
                setattr(cls, name, own)

        self._restore.append(restore)
