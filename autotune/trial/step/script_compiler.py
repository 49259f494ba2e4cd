"""Notes whether the script runs torch's compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.torch.patching import wrap


class ScriptCompiler:
    """Notes the script's calls of `torch.compile` and `Module.compile`.

    Args:
        is_used: Whether the script is known to compile.
    """

    def __init__(self, *, is_used: bool = False) -> None:
        self.is_used = is_used
        """Whether the script has called the compiler, or is known to."""

    def install(self) -> None:
        """Attaches to both functions. A library may wrap them again: Lightning's import replaces `torch.compile`."""
        for owner in (torch, torch.nn.Module):
            wrap(owner, "compile", self._noting, only_notes=True)

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compiling(*args: Any, **kwargs: Any) -> Any:
            self.is_used = True
            return original(*args, **kwargs)

        return compiling
