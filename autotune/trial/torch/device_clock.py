"""Sets marks on the clock of the training device: host time on a CPU, events on the compute stream on CUDA.

The time between two events includes the device's idle time and does not depend on how far the host runs ahead.
Within a window nothing waits for the device, but for the last of a window's long blocks.
"""

from __future__ import annotations

from typing import Any

import torch

from autotune.trial.meter.host_clock import Clock, HostClock
from autotune.trial.torch import torch_names


class CudaClock:
    """Events on the current stream of the current device; released events are used again.

    An event is free again once the device has reached the event. The number of events therefore grows only with the
    work that the host has queued ahead of the device.
    """

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self._new_event: Any = torch.cuda.Event
        self._free: list[Any] = []

    def mark(self) -> Any:
        """An event behind all work queued so far."""
        event = self._free.pop() if self._free else self._new_event(enable_timing=True)
        event.record()
        return event

    def release(self, mark: Any) -> None:
        """Keeps the event for a later mark."""
        self._free.append(mark)

    def is_reached(self, mark: Any) -> bool:
        """Whether the event has happened; does not wait."""
        return bool(mark.query())

    def wait(self, mark: Any) -> None:
        """Waits for the event alone; work queued behind the event goes on."""
        mark.synchronize()

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds of device time between two events."""
        return float(start.elapsed_time(end)) / 1000.0

    def finish(self) -> None:
        """Waits for the device."""
        torch.cuda.synchronize()


def clock_for(device: str) -> Clock:
    """The clock for a type of device: CUDA events once CUDA is initialised, else the host's clock."""
    if device == "cuda" and torch_names.is_cuda_on():
        return CudaClock()
    return HostClock()
