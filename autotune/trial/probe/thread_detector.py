"""Whether the script asks for the number of threads at its beginning, so that settings change the beginning."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.torch.patching import wrap

VARIABLES = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS"})


class ThreadDetector:
    """Notes questions for the number of threads, to torch and to the environment."""

    def __init__(self) -> None:
        self.is_asked_for = False
        self._restore: list[Callable[[], None]] = []

    def install(self) -> None:
        """Attaches to torch and to `os.environ`."""
        self._restore = [
            wrap(torch, "get_num_threads", self._asking),
            wrap(type(os.environ), "__getitem__", self._reading),
        ]

    def remove(self) -> None:
        """Detaches."""
        for restore in self._restore:
            restore()

    def _asking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_num_threads() -> Any:
            self.is_asked_for = True
            return original()

        return get_num_threads

    def _reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def getitem(environment: Any, name: Any) -> Any:
            self.is_asked_for |= name in VARIABLES
            return original(environment, name)

        return getitem
