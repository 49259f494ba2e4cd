"""Times the parts of a trial, from the tuner's request to the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from autotune.measure.block import Phase
from autotune.model.result import SWITCH
from autotune.trial.torch.patching import wrap

PARTS: Mapping[Phase, str] = {phase: "warm_up" if phase is Phase.WARMUP else phase.value for phase in Phase}
"""The meter's phases as parts of a trial."""


class PartTimes:
    """Notes the beginning of each part of a trial, in seconds of `time.monotonic()`, a clock shared by all processes.

    Args:
        asked_at: Time of the tuner's request for the trial.
        ready_at: Time when the process could run the script, after the start of the interpreter or the fork.
        attached_at: Time when the trial attached to torch. The script's later imports count as preparation.
    """

    def __init__(self, *, asked_at: float, ready_at: float, attached_at: float) -> None:
        self._began = {"start": asked_at, "imports": ready_at, "preparation": attached_at}
        self._device: tuple[float, float] | None = None

    @classmethod
    def after_switch(cls, asked_at: float) -> Self:
        """Times of a measurement in a process that has measured before; the first part is the switch."""
        times = cls(asked_at=asked_at, ready_at=asked_at, attached_at=asked_at)
        times._began = {SWITCH: asked_at}
        return times

    def install(self) -> None:
        """Attaches to torch's first use of CUDA, when the process registers with the driver."""
        import torch

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def initialize(*args: Any, **kwargs: Any) -> Any:
                restore()
                began = time.monotonic()
                result = original(*args, **kwargs)
                self._device = (began, time.monotonic())
                return result

            return initialize

        restore = wrap(torch.cuda, "_lazy_init", make)

    def until_now(self, phases: Mapping[Phase, float]) -> dict[str, float]:
        """Seconds by part; the last part lasts until now.

        Args:
            phases: Times at which the meter entered each phase, in order; empty without a meter.
        """
        now = time.monotonic()
        began = [*self._began.items(), *((PARTS[phase], at) for phase, at in phases.items())]
        ends = [at for _, at in began[1:]] + [now]
        parts = {name: max(0.0, end - at) for (name, at), end in zip(began, ends, strict=True)}
        if self._device is not None:
            at, end = self._device
            within = next(name for name, part_at in reversed(began) if part_at <= at or name == "start")
            parts["device"] = min(end - at, parts[within])
            parts[within] -= parts["device"]
        return parts
