"""Times the work of a CUDA device in a few steps with torch's profiler, and records the profiles for a person."""

from __future__ import annotations

import cProfile
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from autotune.model.observation import DeviceTimes
from autotune.protocol.paths import PROFILE_FILES

TRACE, FUNCTIONS = PROFILE_FILES
COPY, ON_DEVICE, NAMED = "Memcpy", "CUDA", ".step#"
"""Names in torch's profiler: of copies, of the device's events, and of the spans of optimizers."""


class DeviceWatch:
    """Times kernels and copies between `begin` and `end`."""

    def __init__(self) -> None:
        self._profile: Any = profile(activities=[ProfilerActivity.CUDA])

    def begin(self) -> None:
        """Begins once the device has finished all earlier work."""
        torch.cuda.synchronize()
        self._profile.__enter__()

    def end(self, num_steps: int) -> DeviceTimes | None:
        """Ends the profile; None when the driver permits no profiling."""
        torch.cuda.synchronize()
        self._profile.__exit__(None, None, None)
        events: Any = self._profile.events()
        spans = [
            (event.time_range.start / 1e6, event.time_range.end / 1e6, COPY in event.name)
            for event in events or ()
            if _is_work(event) and event.time_range.end > event.time_range.start
        ]
        if not spans:
            return None
        copies = [(start, end) for start, end, is_copy in spans if is_copy]
        return DeviceTimes(
            num_steps=num_steps,
            busy_s=covered_s([(start, end) for start, end, _ in spans]),
            copy_s=covered_s(copies),
        )


def _is_work(event: Any) -> bool:
    """Whether an event is a kernel or a copy; False for named spans, although the profiler shows them on the device."""
    is_named = getattr(event, "is_user_annotation", False) or NAMED in event.name
    return event.device_type.name == ON_DEVICE and not is_named


def covered_s(spans: list[tuple[float, float]]) -> float:
    """Seconds covered by at least one span."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


class TraceRecording:
    """Records some steps with torch's profiler, and writes a trace."""

    def __init__(self, folder: Path, *, is_cuda: bool) -> None:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
        self._path = folder / TRACE
        self._profile: Any = profile(activities=activities, record_shapes=True)

    def begin(self) -> None:
        """Begins to record."""
        self._profile.__enter__()

    def end(self) -> None:
        """Ends the recording, and writes the file."""
        self._profile.__exit__(None, None, None)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._profile.export_chrome_trace(str(self._path))


class FunctionRecording:
    """Records some steps with Python's own profiler, in the training thread."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FUNCTIONS
        self._profile = cProfile.Profile()

    def begin(self) -> None:
        """Begins to record."""
        self._profile.enable()

    def end(self) -> None:
        """Ends the recording, and writes the file."""
        self._profile.disable()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._profile.dump_stats(self._path)
