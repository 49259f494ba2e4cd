"""Finds the first place in a script where settings matter; the code before runs the same in every trial."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from autotune.trial.step.roots import is_criterion
from autotune.trial.torch.patching import wrap
from autotune.trial.user_frames import user_frames

CUDA_STARTERS: tuple[Any, ...] = tuple(
    owner for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random) if hasattr(owner, "_lazy_init")
)
PLACES: tuple[tuple[Any, str, str], ...] = (
    (DataLoader, "__init__", "a DataLoader is built"),
    (torch.nn.Module, "__call__", "a model is called"),
    (torch.autograd, "backward", "gradients are computed"),
    (torch.autocast, "__enter__", "an autocast region begins"),
    # Two modules hold the function by name.
    *((owner, "_lazy_init", "CUDA starts") for owner in CUDA_STARTERS),
)
"""Calls that settings may change, and the event in each call."""


class Seam:
    """Reports the script's arrival at the first place where settings matter.

    Args:
        reached: Receives the place, before the call there.
    """

    def __init__(self, reached: Callable[[str], None]) -> None:
        self._reached = reached
        self._is_past = False
        self._pid = os.getpid()
        self._restore: list[Callable[[], None]] = []

    def install(self) -> None:
        """Attaches to torch."""
        self._restore = [wrap(owner, name, self._make(owner, name, what)) for owner, name, what in PLACES]

    def reach(self, what: str) -> None:
        """Reports a place, unless a place was reached before, or in a helper process of the script."""
        if self._is_past or os.getpid() != self._pid:
            return
        self._is_past = True
        for restore in self._restore:
            restore()
        frame = next(user_frames(), None)
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else "a library"
        self._reached(f"{place}, where {what}")

    def _make(self, owner: Any, name: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if self._is_past or (owner is torch.nn.Module and not _is_training_call(args[0])):
                    return original(*args, **kwargs)
                self.reach(what)
                # The settings may have replaced the function meanwhile.
                return getattr(owner, name)(*args, **kwargs) if self._is_past else original(*args, **kwargs)

            return call

        return make


def _is_training_call(module: torch.nn.Module) -> bool:
    """Whether settings may change a call of a module: calls of transforms and calls without gradients are left out."""
    return torch.is_grad_enabled() and not is_criterion(module)
