"""Watches the script's loss functions: the targets of its mean, and functions that autocast refuses.

A mean over tokens differs from the mean of micro-batches' means, which the number of targets shows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.torch.patching import wrap
from autotune.trial.torch.torch_names import scripts_as

MAX_COUNTED = 64
UNEVEN = 0.01
"""Relative difference of targets per sample above which a split batch trains differently from a whole batch."""


class LossTargets:
    """Counts the targets of cross entropies, and sees `binary_cross_entropy`.

    For the probe alone: every count waits for the device.
    """

    def __init__(self) -> None:
        self._num_targets = 0
        self._per_sample: list[float] = []
        self.has_unsafe = False
        """Whether the loss was computed from probabilities by `binary_cross_entropy`, which CUDA's autocast refuses."""

    def install(self) -> None:
        """Attaches to torch's loss functions with an `ignore_index`, and to `binary_cross_entropy`."""
        functional: Any = torch.nn.functional
        for name in ("cross_entropy", "nll_loss"):
            signature = inspect.signature(getattr(functional, name))
            wrap(functional, name, self._counting(signature))
        wrap(functional, "binary_cross_entropy", self._noting)

    def backward(self, num_samples: int | None) -> None:
        """Assigns the counted targets to a backward pass over a batch of `num_samples` samples."""
        if self._num_targets and len(self._per_sample) < MAX_COUNTED:
            self._per_sample.append(self._num_targets / (num_samples or 1))
        self._num_targets = 0

    @property
    def vary(self) -> bool:
        """Whether the number of targets per sample differed between batches."""
        counts = self._per_sample
        return bool(counts) and max(counts) > (1 + UNEVEN) * min(counts)

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.has_unsafe |= not torch.compiler.is_compiling() and torch.is_grad_enabled()
            return original(*args, **kwargs)

        return scripts_as(original, call)

    def _counting(self, signature: inspect.Signature) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if not torch.compiler.is_compiling() and torch.is_grad_enabled():
                    bound = signature.bind(*args, **kwargs)
                    bound.apply_defaults()
                    self._num_targets += _num_counted(bound.arguments)
                return original(*args, **kwargs)

            return scripts_as(original, call)

        return make


def _num_counted(arguments: dict[str, Any]) -> int:
    """Number of targets in a mean; 0 for other reductions, for probabilities as targets, and for unreadable targets."""
    target = arguments["target"]
    if not isinstance(target, torch.Tensor) or arguments["reduction"] != "mean" or target.is_floating_point():
        return 0
    try:
        return int((target != arguments["ignore_index"]).sum())
    except RuntimeError:  # Within vmap and in a tensor without data no value can be read.
        return 0
