"""Says when root modules are searched: in the first steps, and again when the script begins to train a new model."""

from __future__ import annotations

from collections.abc import Callable

import torch

from autotune.trial.step.roots import Roots, weights_of
from autotune.trial.step.steps import Steps, parameters_of

SEARCH_STEPS = 8
"""Optimizer steps after which a search ends. By then the script has called all models that train in turn. During the
measurement nothing stays on the hot path."""
MOST_VAIN = 3
"""Number of searches in a row without a new root that ends all searching. A script may build an optimizer in every step
for tensors of no model, for instance for an adversarial example."""


class RootSearch:
    """Begins and ends the search for roots.

    A model trained later has a new optimizer: each fold of a cross-validation, each client of a federation, each run of
    a sweep. Such an optimizer begins the search again, for a few steps.

    Args:
        roots: Find the roots.
        steps: Tell of the optimizers and their steps.
        may_repeat: Whether a later search is safe: a search makes torch compile compiled models anew.
    """

    def __init__(self, roots: Roots, steps: Steps, may_repeat: Callable[[], bool]) -> None:
        self._roots, self._steps, self._may_repeat = roots, steps, may_repeat
        self._is_over = False
        """Whether a search has ended, and no other has begun."""
        self._num_left = 0
        """Steps of any optimizer until the end of a later search."""
        self._num_found_before = self._num_vain = 0

    def attach(self, *, is_later: bool) -> None:
        """Attaches to the steps, to end the search; begins the search too, after the next step, if `is_later`."""
        if is_later:
            self._steps.on_step.append(self._begin_later)
        self._steps.on_step.append(self._end_first)
        self._steps.on_built.append(self._built)

    def begin(self) -> None:
        """Begins the first search."""
        self._roots.install()

    def _begin_later(self, _: torch.optim.Optimizer | None) -> None:
        self._steps.forget(self._begin_later)
        self.begin()

    def _end_first(self, _: torch.optim.Optimizer | None) -> None:
        if self._steps.num_steps >= SEARCH_STEPS:
            self._steps.forget(self._end_first)
            self._end()

    def _end(self) -> None:
        self._roots.stop()
        self._is_over = True

    def _built(self, optimizer: torch.optim.Optimizer) -> None:
        """Begins the search again for an optimizer with parameters of no root."""
        if not self._is_over or self._num_vain >= MOST_VAIN or not self._may_repeat():
            return
        known = {id(weight) for weight in weights_of(self._roots.modules)}
        if all(id(parameter) in known for parameter in parameters_of(optimizer)):
            return
        self._is_over = False
        self._num_left, self._num_found_before = SEARCH_STEPS, self._roots.num_found
        self._steps.on_step.append(self._end_again)
        self._roots.install()

    def _end_again(self, _: torch.optim.Optimizer | None) -> None:
        self._num_left -= 1
        if self._num_left == 0:
            self._steps.forget(self._end_again)
            self._num_vain = self._num_vain + 1 if self._roots.num_found == self._num_found_before else 0
            self._end()
