"""The use of the machine by a training, as published for the baseline and for the best settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from autotune.model.checks import check_figures

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Means over the windows of a trial's finals; None without a figure from the system."""

    device_utilization: float | None = None
    """Share of the time with a running kernel, 0 to 1."""
    sm_activity: float | None = None
    """Share of the device's multiprocessors at work, 0 to 1; of NVIDIA devices from Hopper on."""
    power_w: float | None = None
    """Power of all training devices, in watts."""
    joules_per_sample: float | None = None
    """Energy of the devices per sample, or per step if samples are not counted."""
    saved_joules_per_hour: float | None = None
    """Energy saved by the devices on all samples of an hour of the baseline; below 0 if the devices need more. None
    for the baseline."""
    mfu: float | None = None
    """Arithmetic of the model relative to the device's peak for the number format, 0 to 1."""
    tflops: float | None = None
    """Arithmetic of the model on one device, in 10^12 operations per second."""
    peak_tflops: float | None = None
    """Peak of the device for the number format, without sparsity."""
    peak_memory_bytes: int | None = None
    total_memory_bytes: int | None = None
    """Memory of the device, or of the host for a training on the CPU."""
    cpus: float | None = None
    """Cores kept busy by the training and its workers."""
    usable_cpus: float | None = None
    read_bytes_per_s: float | None = None
    """Bytes read from storage, not from the page cache, per second."""
    io_wait: float | None = None
    """Share of the time with some process of the machine waiting for storage, 0 to 1."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)

    def saving_over(self, baseline: Usage | None) -> Usage:
        """This usage with the energy saved; unchanged where the energy of either side is unknown."""
        if baseline is None or not baseline.joules_per_sample or not baseline.power_w or self.joules_per_sample is None:
            return self
        saved_share = 1 - self.joules_per_sample / baseline.joules_per_sample
        return replace(self, saved_joules_per_hour=saved_share * baseline.power_w * HOUR_S)

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The usage described by `document`."""
        return cls(**document)
