"""Compares the settings of a job with the settings seen in force. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.protocol.job import TrialJob
from autotune.settings import GROUP_OF_FIELD, SETTINGS, Settings

FRACTION_TOLERANCE = 0.001
"""Tolerance as a share of the device's memory: the value read back was rounded to bytes, and relates to the total
reported by CUDA."""
TRAINING_FIELDS = tuple(setting.name for setting in SETTINGS if setting.decides_training)
"""Settings that decide what is trained: when the script changes such a setting, a trial measures another training."""


def missed_settings(job: TrialJob, observed: Mapping[str, str]) -> dict[str, tuple[object, str | None]]:
    """Settings that a job asks for and that are not in force, as name -> (asked, seen).

    A job asks for a setting by a value different from the script's own value. Settings with the script's own value are
    not compared.

    Args:
        job: A job with settings.
        observed: Settings in force, by field, as text. Settings that could not be seen are missing. A missing setting
            counts, with None as the seen value, when the script was given the setting as an argument.
    """
    asked, script_settings = _settings_of(job)
    missed: dict[str, tuple[object, str | None]] = {}
    for name in GROUP_OF_FIELD:
        seen, value = observed.get(name), getattr(asked, name)
        if value == getattr(script_settings, name) or _is_excused(name, asked, is_cpu=job.device == "cpu"):
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
    """Training settings that the job left alone and the script changed, as name -> (own, seen).

    The result is empty for a trial of the script's own settings: every value in force is then the script's own.

    Args:
        job: A job with settings.
        observed: Settings in force, by field, as text; settings that could not be seen are missing.
    """
    asked, script_settings = _settings_of(job)
    if asked == script_settings:
        return {}
    return {
        name: (getattr(script_settings, name), observed[name])
        for name in TRAINING_FIELDS
        if name in observed
        and getattr(script_settings, name) == getattr(asked, name) is not None
        and observed[name] != str(getattr(script_settings, name))
    }


def _settings_of(job: TrialJob) -> tuple[Settings, Settings]:
    assert job.settings is not None and job.script_settings is not None
    is_cpu = job.device == "cpu"
    return job.settings.canonical(device_is_cpu=is_cpu), job.script_settings.canonical(device_is_cpu=is_cpu)


def _is_close(seen: str, fraction: float) -> bool:
    try:
        return abs(float(seen) - fraction) <= FRACTION_TOLERANCE
    except ValueError:
        return False


def _is_excused(name: str, asked: Settings, *, is_cpu: bool) -> bool:
    """Whether the field is not compared: inert fields, and fields left to the script."""
    if name in asked.inert:
        return True
    if name in ("pin_memory", "memory_fraction") and is_cpu:
        return True
    return name == "batch_size" and asked.batch_size is None
