"""Defines the stages of an observation, each attached for some steps of the script's loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from autotune.model.observation import DeviceTimes
from autotune.trial.observing.device_times import DeviceWatch
from autotune.trial.observing.line_sampler import LineSampler
from autotune.trial.observing.memory_kinds import ActivationWatch
from autotune.trial.step.roots import Roots
from autotune.trial.step.steps import Steps
from autotune.trial.torch import torch_names


class Stage(Protocol):
    """A stage; may end after `least_steps` and `least_s`, and must end after `longest_s`."""

    least_steps: int
    least_s: float
    longest_s: float

    def begin(self) -> None:
        """Attaches the stage's instruments."""

    def end(self, num_steps: int, wall_s: float) -> None:
        """Detaches the instruments, after `num_steps` steps in `wall_s` seconds."""


class LineStage:
    """Samples the lines of the training thread; only a timer is attached."""

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
        """Stops the timer."""
        self.is_sampled = self.sampler.is_on
        self.sampler.end()
        self.cpu_s, self.wall_s = time.process_time() - self.cpu_s, wall_s


class MemoryStage:
    """Measures the tensors that autograd saves for one step.

    Args:
        steps: Gives the parameters of the optimizers, for the tensors to leave out.
        roots: Give the parameters of the models, for the tensors to leave out.
        at_step: Called once after a step, while gradients still exist.
    """

    least_steps, least_s, longest_s = 1, 0.0, 8.0

    def __init__(self, steps: Steps, roots: Roots, at_step: Callable[[], None]) -> None:
        self._steps, self._roots, self._at_step = steps, roots, at_step
        self.activations_bytes: int | None = None
        self._watch: ActivationWatch | None = None

    def begin(self) -> None:
        """Begins to note saved tensors; does nothing for a compiled model."""
        known = [*self._steps.parameters(), *(p for root in self._roots.modules for p in root.parameters())]
        if not any(torch_names.is_compiled(root) for root in self._roots.modules):
            self._watch = ActivationWatch(known)
            self._watch.begin()
        self._steps.on_step.append(self._stepped)

    def end(self, num_steps: int, wall_s: float) -> None:
        """Ends the notes."""
        self._steps.forget(self._stepped)
        if self._watch is not None:
            self.activations_bytes = self._watch.end()

    def _stepped(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is self._steps.primary:
            self._steps.forget(self._stepped)
            self._at_step()


class DeviceStage:
    """Times kernels and copies of a CUDA device."""

    least_steps, least_s, longest_s = 4, 0.3, 8.0

    def __init__(self) -> None:
        self.times: DeviceTimes | None = None
        self._watch = DeviceWatch()

    def begin(self) -> None:
        """Begins the profile."""
        self._watch.begin()

    def end(self, num_steps: int, wall_s: float) -> None:
        """Ends the profile."""
        self.times = self._watch.end(num_steps)


class RecordingStage:
    """Records a profile for a person to read."""

    def __init__(self, recording: Any, *, least_steps: int, least_s: float) -> None:
        self._recording = recording
        self.least_steps, self.least_s, self.longest_s = least_steps, least_s, 20.0

    def begin(self) -> None:
        """Begins to record."""
        self._recording.begin()

    def end(self, num_steps: int, wall_s: float) -> None:
        """Writes the profile."""
        self._recording.end()
