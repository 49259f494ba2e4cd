"""Counts the calls of torch.save, by which scripts write checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.torch.patching import wrap


class Saves:
    """Counts the calls of torch.save from `install` on."""

    def __init__(self) -> None:
        self.num = 0

    def install(self) -> None:
        """Attaches to torch.save; pickle still finds the function by name."""
        wrap(torch, "save", self._counting, only_notes=True)
        torch.save.__module__ = torch.__name__

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(*args: Any, **kwargs: Any) -> Any:
            self.num += 1
            return original(*args, **kwargs)

        return save
