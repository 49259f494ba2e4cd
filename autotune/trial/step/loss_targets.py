"""Over how many targets the script's loss is a mean: a mean over tokens is not the mean of its micro-batches' means."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.torch.patching import wrap

MAX_COUNTED = 64
UNEVEN = 0.01
"""Relative difference of the targets per sample from which a split batch trains something else than a whole one."""


class LossTargets:
    """Counts the targets of cross entropies, each call of which waits for the device: for the probe alone."""

    def __init__(self) -> None:
        self._num_targets = 0
        self._per_sample: list[float] = []

    def install(self) -> None:
        """Attaches to torch's functions of losses that leave out some targets."""
        functional: Any = torch.nn.functional
        for name in ("cross_entropy", "nll_loss"):
            signature = inspect.signature(getattr(functional, name))
            wrap(functional, name, self._counting(signature))

    def backward(self, num_samples: int | None) -> None:
        """Notes that a backward pass has used what was counted, for a batch of so many samples."""
        if self._num_targets and len(self._per_sample) < MAX_COUNTED:
            self._per_sample.append(self._num_targets / (num_samples or 1))
        self._num_targets = 0

    @property
    def vary(self) -> bool:
        """Whether batches had different numbers of targets for each of their samples."""
        counts = self._per_sample
        return bool(counts) and max(counts) > (1 + UNEVEN) * min(counts)

    def _counting(self, signature: inspect.Signature) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if not torch.compiler.is_compiling() and torch.is_grad_enabled():
                    bound = signature.bind(*args, **kwargs)
                    bound.apply_defaults()
                    self._num_targets += _num_counted(bound.arguments)
                return original(*args, **kwargs)

            return call

        return make


def _num_counted(arguments: dict[str, Any]) -> int:
    """Targets that a mean is taken over; 0 for other reductions, and for targets that are probabilities."""
    target = arguments["target"]
    if arguments["reduction"] != "mean" or target.is_floating_point():
        return 0
    return int((target != arguments["ignore_index"]).sum())
