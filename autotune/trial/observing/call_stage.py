"""Times the parts of a step: waiting, forward, backward, optimizer and the rest."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import torch

from autotune.model.observation import LoadingTimes, StepTimes
from autotune.trial.observing.foreign_work import ForeignWork
from autotune.trial.observing.loader_work import LoadingWatch
from autotune.trial.observing.stopwatch import Stopwatch
from autotune.trial.observing.sync_calls import SyncCalls
from autotune.trial.observing.user_code import Place, Stack, users_stack
from autotune.trial.step.roots import Roots
from autotune.trial.step.steps import Steps
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap

MAX_PLACES = 64
"""Number of calls with a note of the place in the user's code; a loop repeats the same places."""


class _Part(StrEnum):
    WAIT = "wait"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    REST = "rest"


class CallStage:
    """The stage that times the parts of a step, calls that read a tensor's value, and the building of batches.

    Args:
        steps: The script's backward passes and steps.
        roots: The script's root modules.
        loading: Times the building of batches.
        device: Type of the training device.
    """

    least_steps, least_s, longest_s = 4, 1.0, 8.0

    def __init__(self, steps: Steps, roots: Roots, loading: LoadingWatch, device: str) -> None:
        self._steps, self._roots, self._loading = steps, roots, loading
        self.calls = SyncCalls(device)
        self.training: set[Place] = set()
        """Lines of the user's code on the stack of a training call."""
        self.loading: set[Place] = set()
        """The training lines that asked a loader for a batch."""
        self.step_place: Place | None = None
        """The line that steps the optimizer."""
        self.forward_place: Place | None = None
        """The line that calls the model."""
        self.times: StepTimes | None = None
        self.loading_times: LoadingTimes | None = None
        self.foreign: ForeignWork | None = None
        """The work of a loader that is no DataLoader."""
        self._watch = Stopwatch()
        self._thread = 0
        self._num_noted = 0
        self._restore: list[Callable[[], None]] = []

    @property
    def has_seen_loading(self) -> bool:
        """Whether enough of the batches' building was timed."""
        return self.foreign is not None or self._loading.has_enough

    def begin(self) -> None:
        """Wraps the parts of a step."""
        self._thread = threading.get_ident()
        self._restore.append(wrap(torch.autograd, "backward", self._timing(_Part.BACKWARD)))
        if torch_names.ITERATOR is not None:
            self._restore.append(wrap(torch_names.ITERATOR, "__next__", self._timing(_Part.WAIT)))
        if self.foreign is not None:
            for cls in self.foreign.batches.classes:
                self._restore.append(wrap(cls, "__next__", self._timing(_Part.WAIT)))
            self.foreign.begin()
        if torch_names.HAS_CALL_SLOT:
            for module in self._roots.modules:
                self._time_calls_of(module)
        before = self._steps.policy
        self._steps.policy = lambda optimizer, call: self._stepping(before, optimizer, call)
        self._restore.append(lambda: setattr(self._steps, "policy", before))
        self.calls.attach()
        self._loading.begin()
        self._watch.enter(_Part.REST)

    def end(self, num_steps: int, wall_s: float) -> None:
        """Detaches everything, and computes the times."""
        while self._watch.is_running:
            self._watch.leave()
        self.loading_times = self._loading.end() if self.foreign is None else self.foreign.end()
        self.calls.detach()
        while self._restore:
            self._restore.pop()()
        seconds = self._watch.seconds
        if not num_steps:
            return
        self.times = StepTimes(
            num_steps=num_steps,
            wall_s=wall_s,
            data_wait_s=seconds[_Part.WAIT],
            forward_s=seconds[_Part.FORWARD],
            backward_s=seconds[_Part.BACKWARD],
            optimizer_s=seconds[_Part.OPTIMIZER],
        )

    def _timed(self, part: _Part, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != self._thread or not self._watch.is_running:
            return call(*args, **kwargs)
        if self._num_noted < MAX_PLACES:
            self._num_noted += 1
            self._note(part, users_stack(sys._getframe(1)))
        self._watch.enter(part)
        try:
            return call(*args, **kwargs)
        finally:
            self._watch.leave()

    def _note(self, part: _Part, stack: Stack) -> None:
        self.training.update(stack)
        innermost = stack[0] if stack else None
        if part is _Part.WAIT:
            self.loading.update(stack[:1])
        elif part is _Part.OPTIMIZER:
            self.step_place = self.step_place or innermost
        elif part is _Part.FORWARD:
            self.forward_place = self.forward_place or innermost

    def _timing(self, part: _Part) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: self._timed(part, original, *args, **kwargs)

        return make

    def _time_calls_of(self, module: torch.nn.Module) -> None:
        inner = torch_names.outer_call(module)
        had_own = torch_names.own_call(module)
        torch_names.set_outer_call(module, torch_names.SlotCall(self._timing(_Part.FORWARD)(inner)))
        self._restore.append(lambda: torch_names.set_outer_call(module, had_own))

    def _stepping(self, before: Any, optimizer: torch.optim.Optimizer, call: Callable[[], Any]) -> tuple[Any, bool]:
        if before is None:
            return self._timed(_Part.OPTIMIZER, call), True
        result: tuple[Any, bool] = self._timed(_Part.OPTIMIZER, before, optimizer, call)
        return result
