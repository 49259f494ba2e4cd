"""What a job waits for, from its rate, its compute-only rate and its data wait."""

import math
from dataclasses import dataclass
from enum import StrEnum

LOADER_DOMINANT_WAIT_FRACTION = 0.2
"""A fifth of the time inside `next()`: the loader is what to improve, whatever else there is."""

LOADER_NOTICEABLE_WAIT_FRACTION = 0.05
"""A twentieth may be noise or an epoch's start; it counts once the rate is below its ceiling too."""

AT_CEILING_FRACTION = 0.95
"""A rate this close to the compute-only rate is at it: near balance the two were measured up to 3 % apart, plus
noise."""

CONTENTION_MIN_GAP = 0.10
"""How much more time is lost against the compute-only rate than is waited inside `next()`, before contention is named.
Without contention the two were measured to agree within 0.02; with it they were 0.2 to 0.6 apart."""

CONTENTION_MIN_GAP_ON_ACCELERATOR = 0.20
"""The same where the device is not the CPU. The compute-only rate is measured on a batch that lies on the device
already, so copying the batches is a part of the gap that is no contention."""

CONTENTION_MIN_STALL_RATIO = 2.0
"""And the lost time is at least this many times the wait; otherwise the loader explains most of it."""

HOST_MAX_BUSY_FRACTION = 0.6
"""NVML calls a device busy while any kernel runs, however small, so a high value says nothing. A low one does: with
less than a fifth of the time waiting for data, at least another fifth of it the device waits for the host to launch
something."""


class BottleneckKind(StrEnum):
    """What a job waits for."""

    LOADER = "loader"
    """The DataLoader does not deliver fast enough."""
    COMPUTE = "compute"
    """It trains as fast as it would without a loader."""
    HOST = "host"
    """The device waits for the host to launch work: Python, small kernels, copies."""
    CPU_CONTENTION = "cpu_contention"
    """Loader workers and the training step take the same processors from each other; fewer workers or threads may be
    faster."""
    UNKNOWN = "unknown"
    """What was measured does not tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bottleneck:
    """What a job waits for, and the figures that say so."""

    kind: BottleneckKind
    data_wait_fraction: float
    """Share of the time inside the loader's `next()`, 0 to 1."""
    ceiling_samples_per_second: float | None
    """Compute-only rate; None when it was not measured."""
    ceiling_fraction: float | None
    """Rate over ceiling, None without a ceiling; above 1 by noise only."""


def diagnose(
    rate: float,
    compute_rate: float | None,
    data_wait_fraction: float,
    *,
    device_is_cpu: bool,
    device_busy_fraction: float | None = None,
) -> Bottleneck:
    """The bottleneck of a job.

    The wait inside `next()` shows a slow loader directly. What is lost against the compute-only rate shows it as
    well, and beyond that what the wait hides: workers that take the processors from the training step slow it without
    a wait.

    Args:
        rate: Samples per second over the window, > 0.
        compute_rate: Samples per second on one cached batch, > 0; None when not measured.
        data_wait_fraction: Share of the window inside `next()`, 0 to 1.
        device_is_cpu: Whether the job trains on the CPU.
        device_busy_fraction: Mean NVML utilisation over the window, 0 to 1; None when not known. Ignored on a CPU.

    Raises:
        ValueError: When an argument is out of range.
    """
    _check(rate, compute_rate, data_wait_fraction, device_busy_fraction)
    ceiling_fraction = None if compute_rate is None else rate / compute_rate
    busy_fraction = None if device_is_cpu else device_busy_fraction
    min_gap = CONTENTION_MIN_GAP if device_is_cpu else CONTENTION_MIN_GAP_ON_ACCELERATOR
    return Bottleneck(
        kind=_kind(data_wait_fraction, ceiling_fraction, busy_fraction, min_gap),
        data_wait_fraction=data_wait_fraction,
        ceiling_samples_per_second=compute_rate,
        ceiling_fraction=ceiling_fraction,
    )


def _kind(
    wait_fraction: float, ceiling_fraction: float | None, busy_fraction: float | None, min_contention_gap: float
) -> BottleneckKind:
    # The order matters: contention comes with some wait, and a job that the host holds up is at its ceiling too.
    if ceiling_fraction is not None:
        stall = 1 - ceiling_fraction
        if stall - wait_fraction >= min_contention_gap and stall >= CONTENTION_MIN_STALL_RATIO * wait_fraction:
            return BottleneckKind.CPU_CONTENTION
    if wait_fraction >= LOADER_DOMINANT_WAIT_FRACTION:
        return BottleneckKind.LOADER
    is_below_ceiling = ceiling_fraction is not None and ceiling_fraction < AT_CEILING_FRACTION
    if wait_fraction >= LOADER_NOTICEABLE_WAIT_FRACTION and is_below_ceiling:
        return BottleneckKind.LOADER
    if busy_fraction is not None and busy_fraction < HOST_MAX_BUSY_FRACTION:
        return BottleneckKind.HOST
    if ceiling_fraction is not None and not is_below_ceiling:
        return BottleneckKind.COMPUTE
    return BottleneckKind.UNKNOWN


def _check(
    rate: float, compute_rate: float | None, data_wait_fraction: float, device_busy_fraction: float | None
) -> None:
    if not 0 < rate < math.inf:
        raise ValueError(f"rate must be finite and positive, not {rate!r}")
    if compute_rate is not None and not 0 < compute_rate < math.inf:
        raise ValueError(f"compute_rate must be finite and positive, not {compute_rate!r}")
    if not 0 <= data_wait_fraction <= 1:
        raise ValueError(f"data_wait_fraction must be 0 to 1, not {data_wait_fraction!r}")
    if device_busy_fraction is not None and not 0 <= device_busy_fraction <= 1:
        raise ValueError(f"device_busy_fraction must be 0 to 1, not {device_busy_fraction!r}")
