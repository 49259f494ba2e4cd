"""Where a trial's seconds went, part by part, up to its report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from autotune.measure.block import Phase
from autotune.trial.torch.patching import wrap

PARTS: Mapping[Phase, str] = {phase: "warm_up" if phase is Phase.WARMUP else phase.value for phase in Phase}
"""The meter's phases as parts of a trial."""


class PartTimes:
    """Notes when each part of a trial began; times are `time.monotonic()`, which all processes share.

    Args:
        asked_at: When the tuner asked for the trial.
        ready_at: When the process could run the script: its interpreter was up, or it had been forked.
        attached_at: When torch was there and the trial attached to it. Modules that the script imports after it are a
            part of its preparation: nobody sees them but the script.
    """

    def __init__(self, *, asked_at: float, ready_at: float, attached_at: float) -> None:
        self._began = {"start": asked_at, "imports": ready_at, "preparation": attached_at}
        self._device: tuple[float, float] | None = None

    def install(self) -> None:
        """Attaches to the first use of CUDA, which makes the process known to the driver."""

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
        """Seconds by part; the last one's is the time until now.

        Args:
            phases: When the meter entered its phases, in that order; empty where nothing was metered.
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
