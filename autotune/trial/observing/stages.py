"""The parts of an observation: each is attached for some steps of the script's own loop, one after the other."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

import torch

from autotune.model.observation import DeviceTimes, LoadingTimes, StepTimes
from autotune.trial import torch_names
from autotune.trial.observing.device_times import DeviceWatch
from autotune.trial.observing.line_sampler import LineSampler
from autotune.trial.observing.loading import LoadingWatch
from autotune.trial.observing.memory import ActivationWatch
from autotune.trial.observing.stopwatch import Stopwatch
from autotune.trial.observing.sync_calls import SyncCalls
from autotune.trial.observing.user_code import Place, Stack, users_stack
from autotune.trial.patching import wrap
from autotune.trial.roots import Roots
from autotune.trial.steps import Steps

MAX_PLACES = 64
"""Calls of which the place in the user's code is noted: a loop comes back to the same ones."""


class Stage(Protocol):
    """One part. It may end after so many steps, and must after so long."""

    least_steps: int
    least_s: float
    longest_s: float

    def begin(self) -> None:
        """Attaches what looks."""

    def end(self, num_steps: int, wall_s: float) -> None:
        """Detaches it, after so many steps and seconds."""


class LineStage:
    """Where the training thread is; nothing but a timer is attached."""

    least_steps, least_s, longest_s = 4, 1.5, 8.0

    def __init__(self) -> None:
        self.sampler = LineSampler()
        self.is_sampled = False
        self.cpu_s = self.wall_s = 0.0

    def begin(self) -> None:
        """Starts the timer."""
        self.cpu_s = time.process_time()
        self.sampler.begin()

    def end(self, num_steps: int, wall_s: float) -> None:
        """Stops it."""
        self.is_sampled = self.sampler.is_on
        self.sampler.end()
        self.cpu_s, self.wall_s = time.process_time() - self.cpu_s, wall_s


class _Part(StrEnum):
    WAIT = "wait"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    REST = "rest"


class CallStage:
    """The parts of a step, the calls that read a tensor's value, and the building of batches.

    Args:
        steps: Of the script.
        roots: Of the script.
        loading: Times the building of batches.
        device: Type of the device that trains.
    """

    least_steps, least_s, longest_s = 4, 1.0, 8.0

    def __init__(self, steps: Steps, roots: Roots, loading: LoadingWatch, device: str) -> None:
        self._steps, self._roots, self._loading = steps, roots, loading
        self.calls = SyncCalls(device)
        self.training: set[Place] = set()
        """Lines of the user's code that training was called from, or that called those."""
        self.loading: set[Place] = set()
        """Of these, the ones that asked a loader for a batch."""
        self.step_place: Place | None = None
        """Where the script steps its optimizer."""
        self.forward_place: Place | None = None
        """Where it calls its model."""
        self.times: StepTimes | None = None
        self.loading_times: LoadingTimes | None = None
        self._watch = Stopwatch()
        self._thread = 0
        self._num_noted = 0
        self._restore: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Wraps the parts of a step."""
        self._thread = threading.get_ident()
        self._restore.append(wrap(torch.autograd, "backward", self._timing(_Part.BACKWARD)))
        if torch_names.ITERATOR is not None:
            self._restore.append(wrap(torch_names.ITERATOR, "__next__", self._timing(_Part.WAIT)))
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
        """Takes all of it off."""
        while self._watch.is_running:
            self._watch.leave()
        self.loading_times = self._loading.end()
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
        torch_names.set_outer_call(module, self._timing(_Part.FORWARD)(inner))
        self._restore.append(lambda: torch_names.set_outer_call(module, had_own))

    def _stepping(self, before: Any, optimizer: torch.optim.Optimizer, call: Callable[[], Any]) -> tuple[Any, bool]:
        if before is None:
            return self._timed(_Part.OPTIMIZER, call), True
        result: tuple[Any, bool] = self._timed(_Part.OPTIMIZER, before, optimizer, call)
        return result


class MemoryStage:
    """What autograd holds for one step.

    Args:
        steps: Whose parameters are known.
        roots: The same.
        at_step: Called once, when a step has been made and its gradients are still there.
    """

    least_steps, least_s, longest_s = 1, 0.0, 8.0

    def __init__(self, steps: Steps, roots: Roots, at_step: Callable[[], None]) -> None:
        self._steps, self._roots, self._at_step = steps, roots, at_step
        self.activations_bytes: int | None = None
        self._watch: ActivationWatch | None = None

    def begin(self) -> None:
        """Looks at what is saved from now on."""
        known = [*self._steps.parameters(), *(p for root in self._roots.modules for p in root.parameters())]
        if not any(torch_names.is_compiled(root) for root in self._roots.modules):
            self._watch = ActivationWatch(known)
            self._watch.begin()
        self._steps.on_step.append(self._stepped)

    def end(self, num_steps: int, wall_s: float) -> None:
        """Ends it."""
        self._steps.forget(self._stepped)
        if self._watch is not None:
            self.activations_bytes = self._watch.end()

    def _stepped(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is self._steps.primary:
            self._steps.forget(self._stepped)
            self._at_step()


class DeviceStage:
    """Kernels and copies of a CUDA device."""

    least_steps, least_s, longest_s = 4, 0.3, 8.0

    def __init__(self) -> None:
        self.times: DeviceTimes | None = None
        self._watch = DeviceWatch()

    def begin(self) -> None:
        """Begins to look."""
        self._watch.begin()

    def end(self, num_steps: int, wall_s: float) -> None:
        """Ends it."""
        self.times = self._watch.end(num_steps)


class RecordingStage:
    """A profile for a person."""

    def __init__(self, recording: Any, *, least_steps: int, least_s: float) -> None:
        self._recording = recording
        self.least_steps, self.least_s, self.longest_s = least_steps, least_s, 20.0

    def begin(self) -> None:
        """Begins to record."""
        self._recording.begin()

    def end(self, num_steps: int, wall_s: float) -> None:
        """Writes it."""
        self._recording.end()


class LargerBatchStage:
    """The step on one batch again and again, and on the same so many times over, in turns: a loaded machine slows both.

    Args:
        give: Makes the loader give that batch, or real ones again for None.
        own: A batch of the script's size.
        larger: The larger one.
        finish_device: Waits for the device.
        waited_s: Time that handing out batches took so far.
    """

    least_steps, least_s, longest_s = 1, 0.0, 6.0
    num_turns = 6
    turn_steps, turn_s = 3, 0.15
    """Least length of a turn; its first step is not counted."""

    def __init__(
        self,
        give: Callable[[Any], None],
        own: Any,
        larger: Any,
        finish_device: Callable[[], None],
        waited_s: Callable[[], float],
    ) -> None:
        self._give, self._batches = give, (own, larger)
        self._finish_device, self._waited_s = finish_device, waited_s
        self._seconds, self._num_timed = [0.0, 0.0], [0, 0]
        self._turn = 0
        self._num_seen = 0
        self._began = self._waited_before = 0.0

    @property
    def is_larger(self) -> bool:
        """Whether the script is given a batch that is not of its own size."""
        return self._turn % 2 == 1

    @property
    def step_s(self) -> tuple[float, float] | None:
        """Seconds of a step on the own and on the larger batch; None where one was not seen."""
        if not all(self._num_timed):
            return None
        own_s, larger_s = (s / n for s, n in zip(self._seconds, self._num_timed, strict=True))
        return own_s, larger_s

    @property
    def is_over(self) -> bool:
        """Whether both have had their turns."""
        return self._turn >= self.num_turns

    def begin(self) -> None:
        """The next batch is the first one's."""
        self._give(self._batches[0])

    def stepped(self) -> None:
        """A step was made."""
        self._num_seen += 1
        if self._num_seen == 1:
            self._finish_device()
            self._began, self._waited_before = time.perf_counter(), self._waited_s()
        elif self._num_seen >= self.turn_steps and time.perf_counter() - self._began >= self.turn_s:
            self._end_turn()

    def end(self, num_steps: int, wall_s: float) -> None:
        """Ends it."""
        self._give(None)

    def _end_turn(self) -> None:
        self._finish_device()
        which = self._turn % 2
        waited_s = self._waited_s() - self._waited_before
        self._seconds[which] += max(time.perf_counter() - self._began - waited_s, 1e-9)
        self._num_timed[which] += self._num_seen - 1
        self._turn += 1
        self._num_seen = 0
        self._give(self._batches[self._turn % 2])
