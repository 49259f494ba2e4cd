"""Settings asked for against settings that were seen to be in force. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.model.job import TrialJob
from autotune.settings import GROUP_OF_FIELD, Settings

FRACTION_TOLERANCE = 0.001
"""Of the device's memory: what is read back was rounded to bytes, and is of what CUDA calls the total."""
TRAINING_FIELDS = ("batch_size", "grad_accum_steps", "precision")
"""Settings that decide what is trained: where one of them moves by itself, a trial measures another training."""


def missed_settings(job: TrialJob, observed: Mapping[str, str]) -> dict[str, tuple[object, str | None]]:
    """Settings that a job asks for and that are not in force, as name -> (asked, seen).

    A job asks for a setting by another value than the script's own. What equals the script's own value is left alone,
    so that nobody asked for it.

    Args:
        job: With its settings.
        observed: Settings in force, by field, as text. What could not be seen is missing; it counts, with None, where
            the script was given it as an argument of its own.
    """
    asked, natural = _settings_of(job)
    missed: dict[str, tuple[object, str | None]] = {}
    for name in GROUP_OF_FIELD:
        seen, value = observed.get(name), getattr(asked, name)
        if value == getattr(natural, name) or _is_excused(name, asked, is_cpu=job.device == "cpu"):
            continue
        if seen is None:
            if name in job.mapped:
                missed[name] = (value, None)
        elif name == "memory_fraction":
            fraction = min(asked.memory_fraction, job.cap_fraction)
            if not _is_close(seen, fraction):
                missed[name] = (fraction, seen)
        elif str(value) != seen:
            missed[name] = (value, seen)
    return missed


def moved_settings(job: TrialJob, observed: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    """Settings that decide what is trained, and that changed although the job left them alone, as name -> (own, seen).

    Nothing in a trial of the script's own settings: what is in force there is the script's own.

    Args:
        job: With its settings.
        observed: Settings in force, by field, as text; what could not be seen is missing.
    """
    asked, natural = _settings_of(job)
    if asked == natural:
        return {}
    return {
        name: (getattr(natural, name), observed[name])
        for name in TRAINING_FIELDS
        if name in observed
        and getattr(natural, name) == getattr(asked, name) is not None
        and observed[name] != str(getattr(natural, name))
    }


def _settings_of(job: TrialJob) -> tuple[Settings, Settings]:
    assert job.settings is not None and job.natural is not None
    is_cpu = job.device == "cpu"
    return job.settings.canonical(device_is_cpu=is_cpu), job.natural.canonical(device_is_cpu=is_cpu)


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
