"""The use that a training makes of the machine, as published for the baseline and for the best settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from autotune.model.checks import check_figures


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Means over the windows of a trial's finals; None where the system gives no figure."""

    device_utilization: float | None = None
    """Share of the time with a running kernel, 0 to 1."""
    sm_activity: float | None = None
    """Share of the device's multiprocessors at work, 0 to 1; of NVIDIA devices from Hopper on."""
    power_w: float | None = None
    """Power of all training devices, in watts."""
    joules_per_sample: float | None = None
    """Energy of the devices per sample, or per step if samples are not counted."""
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
    """Share of the time in which some process of the machine waited for storage, 0 to 1."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The usage described by `document`."""
        return cls(**document)
