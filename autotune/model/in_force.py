"""Settings asked for against settings that were seen to be in force. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.model.job import TrialJob
from autotune.settings import GROUP_OF_FIELD, Settings

FRACTION_TOLERANCE = 0.001
"""Of the device's memory: what is read back was rounded to bytes, and is of what CUDA calls the total."""


def missed_settings(job: TrialJob, observed: Mapping[str, str]) -> dict[str, tuple[object, str | None]]:
    """Fields in which what is in force is not what a job asks for, as name -> (asked, seen).

    Args:
        job: With its settings.
        observed: Settings in force, by field, as text. What could not be seen is missing; it counts, with None, where
            the script was given it as an argument of its own.
    """
    assert job.settings is not None and job.natural is not None
    is_cpu = job.device == "cpu"
    asked = job.settings.canonical(device_is_cpu=is_cpu)
    missed: dict[str, tuple[object, str | None]] = {}
    for name in GROUP_OF_FIELD:
        seen = observed.get(name)
        if _is_excused(name, asked, is_cpu=is_cpu):
            continue
        value: object = getattr(asked, name)
        if seen is None:
            if name in job.mapped and value != getattr(job.natural, name):
                missed[name] = (value, None)
        elif name == "memory_fraction":
            fraction = min(asked.memory_fraction, job.cap_fraction)
            if not _is_close(seen, fraction):
                missed[name] = (fraction, seen)
        elif str(value) != seen:
            missed[name] = (value, seen)
    return missed


def _is_close(seen: str, fraction: float) -> bool:
    try:
        return abs(float(seen) - fraction) <= FRACTION_TOLERANCE
    except ValueError:
        return False


def _is_excused(name: str, asked: Settings, *, is_cpu: bool) -> bool:
    """Inert fields, and fields that were left to the script, are not compared."""
    if name in asked.inert:
        return True
    if name in ("pin_memory", "memory_fraction") and is_cpu:
        return True
    return name == "batch_size" and asked.batch_size is None
