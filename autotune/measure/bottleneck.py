"""The bottleneck of a job, from the rate, the compute-only rate and the data wait."""

import math
from dataclasses import dataclass
from enum import StrEnum

LOADER_DOMINANT_WAIT_FRACTION = 0.2
"""With a fifth of the time inside `next()`, the loader is the first thing to improve, whatever the rest looks like."""

LOADER_NOTICEABLE_WAIT_FRACTION = 0.05
"""A twentieth of the time inside `next()` may be noise or an epoch's start; it counts only below the ceiling."""

LOADER_PLAIN_WAIT_FRACTION = 0.1
"""A tenth of the time inside `next()` counts near the ceiling too."""

AT_CEILING_FRACTION = 0.95
"""A rate this close to the compute-only rate is at its ceiling: near balance they are up to 3 % apart, plus noise."""

NEAR_CEILING_FRACTION = 0.9
"""From this share of the compute-only rate on a short wait does not decide: the step takes nine tenths of the time."""

CONTENTION_MIN_GAP = 0.10
"""Contention is named from this gap on: the share of time lost against the compute-only rate, minus the share waited
inside `next()`. Without contention the shares were measured to agree within 0.02; with contention they were 0.2 to 0.6
apart."""

CONTENTION_MIN_GAP_ON_ACCELERATOR = 0.20
"""Least gap for contention on devices other than the CPU. The compute-only rate is measured on a batch already on the
device, so a part of the gap is the copying of batches."""

CONTENTION_MIN_STALL_RATIO = 2.0
"""Least ratio of lost time to wait for contention; with a smaller ratio the loader explains most of the loss."""

HOST_MAX_BUSY_FRACTION = 0.6
"""A device busy for a smaller share of the time waits for the host. NVML calls a device busy while any kernel runs,
however small, so only a low value says something: if less than a fifth of the time is wait for data, the device waits
for the host to launch work during at least another fifth."""


class BottleneckKind(StrEnum):
    """What a job waits for."""

    LOADER = "loader"
    """The DataLoader does not deliver fast enough."""
    COMPUTE = "compute"
    """The job trains as fast as without a loader, or up to a tenth slower."""
    HOST = "host"
    """The device waits for the host to launch work: Python, small kernels, copies."""
    CPU_CONTENTION = "cpu_contention"
    """Loader workers and training step compete for processors; fewer workers or threads may be faster."""
    UNKNOWN = "unknown"
    """The measurements do not tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bottleneck:
    """What a job waits for, with the figures that show it."""

    kind: BottleneckKind
    data_wait_fraction: float
    """Share of the time inside the loader's `next()`, 0 to 1."""
    ceiling_samples_per_second: float | None
    """Compute-only rate; None when it was not measured."""
    ceiling_fraction: float | None
    """Rate over ceiling, above 1 by noise only; None without a ceiling."""


def diagnose(
    rate: float,
    compute_rate: float | None,
    data_wait_fraction: float,
    *,
    device_is_cpu: bool,
    device_busy_fraction: float | None = None,
) -> Bottleneck:
    """The bottleneck of a job.

    The wait inside `next()` shows a slow loader directly. The loss against the compute-only rate shows a slow loader
    too, and a cost without any wait: workers that take the processors from the training step.

    Args:
        rate: Samples per second over the window, > 0.
        compute_rate: Samples per second on one cached batch, > 0; None when not measured.
        data_wait_fraction: Share of the window inside `next()`, 0 to 1.
        device_is_cpu: True when the job trains on the CPU.
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
    # The order matters: contention comes with some wait, and a job held up by the host is at its ceiling too.
    if ceiling_fraction is not None:
        stall = 1 - ceiling_fraction
        if stall - wait_fraction >= min_contention_gap and stall >= CONTENTION_MIN_STALL_RATIO * wait_fraction:
            return BottleneckKind.CPU_CONTENTION
    if wait_fraction >= LOADER_DOMINANT_WAIT_FRACTION:
        return BottleneckKind.LOADER
    is_near = ceiling_fraction is not None and ceiling_fraction >= NEAR_CEILING_FRACTION
    least_wait = LOADER_PLAIN_WAIT_FRACTION if is_near else LOADER_NOTICEABLE_WAIT_FRACTION
    if wait_fraction >= least_wait and ceiling_fraction is not None and ceiling_fraction < AT_CEILING_FRACTION:
        return BottleneckKind.LOADER
    if busy_fraction is not None and busy_fraction < HOST_MAX_BUSY_FRACTION:
        return BottleneckKind.HOST
    if is_near:
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
