"""Whether the script's beginning asks how many threads there are: then it is another one under other settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.torch.patching import wrap

VARIABLES = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS"})


class ThreadDetector:
    """Sees torch being asked for its threads, and the environment for theirs."""

    def __init__(self) -> None:
        self.is_asked_for = False
        self._restore: list[Callable[[], None]] = []

    def install(self) -> None:
        """Begins to look."""
        self._restore = [
            wrap(torch, "get_num_threads", self._asking),
            wrap(type(os.environ), "__getitem__", self._reading),
        ]

    def remove(self) -> None:
        """Ends it."""
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
