"""Sums up the use of the machine in the finals of a trial. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from autotune.host import DeviceInfo, total_memory_bytes
from autotune.model.cards import card_of
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.model.usage import Usage
from autotune.settings import Settings


def usage_of(
    results: Sequence[TrialResult], settings: Settings, facts: ScriptFacts, device: DeviceInfo
) -> Usage | None:
    """The use of the machine in runs of the same settings; None when no run was observed.

    Args:
        results: Runs of the settings.
        settings: The settings.
        facts: Facts of the script.
        device: The first training device.
    """
    seen = [result.surroundings for result in results if result.surroundings is not None]
    rates = [each.measurement.steady_samples_per_second for each in results if each.measurement is not None]
    if not seen or not rates:
        return None
    rate, power = fmean(rates), mean(each.power_w for each in seen)
    watts = power * facts.world_size if power is not None else None
    flops = flops_per_sample(facts)
    tflops = rate / facts.world_size * flops / 1e12 if flops is not None else None
    card = None if device.is_cpu else card_of(device.name)
    peak = card.peak_tflops(settings.precision) if card is not None else None
    return Usage(
        device_utilization=mean(each.device_utilization for each in seen),
        sm_activity=mean(each.sm_activity for each in seen),
        power_w=watts,
        joules_per_sample=watts / rate if watts is not None else None,
        mfu=tflops / peak if tflops is not None and peak is not None else None,
        tflops=tflops,
        peak_tflops=peak,
        peak_memory_bytes=max((result.peak_memory_bytes or 0 for result in results), default=0) or None,
        total_memory_bytes=total_memory_bytes() if device.is_cpu else device.total_bytes,
        cpus=mean(each.own_cpus for each in seen),
        usable_cpus=max(each.usable_cpus for each in seen),
        read_bytes_per_s=mean(_read_rate(each.storage_read_bytes, each.window_s) for each in seen),
        io_wait=mean(each.io_pressure for each in seen),
    )


def flops_per_sample(facts: ScriptFacts) -> float | None:
    """Arithmetic operations of one sample, forward and backward; None where operations or samples are unknown."""
    if not facts.call_flops or facts.loader is None or facts.loader.batch_size is None:
        return None
    return facts.call_flops / facts.loader.batch_size


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _read_rate(num_bytes: int | None, window_s: float) -> float | None:
    return num_bytes / window_s if num_bytes is not None and window_s > 0 else None
