"""Compares the settings of a job with the settings seen in force. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from autotune.model.maps import UNSEEN_FIELDS
from autotune.model.result import TrialResult
from autotune.protocol.job import TrialJob
from autotune.settings import SETTINGS, Setting, Settings, Value

FRACTION_TOLERANCE = 0.001
"""Tolerance as a share of the device's memory: the value read back was rounded to bytes, and relates to the total
reported by CUDA."""
TRAINING_FIELDS = tuple(setting.name for setting in SETTINGS if setting.decides_training)
"""Settings of the training itself: when the script changes a value, a trial measures another training."""


def missed_settings(job: TrialJob, observed: Mapping[str, Value | None]) -> dict[str, tuple[object, Value | None]]:
    """Settings that a job asks for and that are not in force, as name -> (asked, seen).

    A job asks for a setting by a value different from the script's own value. Settings with the script's own value are
    not compared.

    Args:
        job: A job with settings.
        observed: Settings in force by field; None = not to be read back. A setting that shows nothing is missing. A
            missing setting counts, with None as the seen value, when the script was given the setting as an argument.
    """
    asked, script_settings = _settings_of(job)
    missed: dict[str, tuple[object, Value | None]] = {}
    for setting in SETTINGS:
        name, value = setting.name, getattr(asked, setting.name)
        if value == getattr(script_settings, name) or _is_excused(setting, asked, is_cpu=job.device == "cpu"):
            continue
        if setting.is_capped:
            value = min(value, job.cap_fraction)
        seen = observed.get(name)
        is_missed = name in job.mapped if name not in observed else not _is_same(setting, seen, value)
        if is_missed:
            missed[name] = (value, seen)
    return missed


def idle_changes(
    settings: Settings, own: Settings, results: Iterable[TrialResult], kept: Collection[str] = ()
) -> tuple[str, ...]:
    """The changed settings that no run put to any use, by name.

    Copies that a script starts without waiting by itself, and a script without copies from page-locked memory, leave
    nothing for `non_blocking` to change. Only settings that are seen by their use alone count.

    Args:
        settings: Settings of the runs.
        own: The script's own settings.
        results: Results of the runs; none is idle in runs that report nothing of what was in force.
        kept: Settings that the user asked for.
    """
    seen = [rank.observed for result in results for rank in result.ranks if rank.observed]
    changed = settings.differences(own).keys() - {*kept}
    unseen = (name for name in UNSEEN_FIELDS if not any(name in observed for observed in seen))
    return tuple(name for name in unseen if seen and name in changed)


def text_in_force(name: str, seen: object, comments: Mapping[str, str]) -> str:
    """A value in force as text; the comment where there is one."""
    return comments.get(name) or str(seen)


def moved_settings(job: TrialJob, observed: Mapping[str, Value | None]) -> dict[str, tuple[object, Value | None]]:
    """Training settings with an effect that the job left alone and the script changed, as name -> (own, seen).

    The result is empty for a trial of the script's own settings: every value in force is then the script's own.

    Args:
        job: A job with settings.
        observed: Settings in force by field; settings that show nothing are missing.
    """
    asked, script_settings = _settings_of(job)
    if asked == script_settings:
        return {}
    return {
        name: (getattr(script_settings, name), observed[name])
        for name in TRAINING_FIELDS
        if name in observed.keys() - asked.inert.keys()
        and getattr(script_settings, name) == getattr(asked, name) is not None
        and observed[name] != getattr(script_settings, name)
    }


def _settings_of(job: TrialJob) -> tuple[Settings, Settings]:
    assert job.request.settings is not None and job.script_settings is not None
    is_cpu = job.device == "cpu"
    return job.request.settings.canonical(device_is_cpu=is_cpu), job.script_settings.canonical(device_is_cpu=is_cpu)


def _is_same(setting: Setting, seen: Value | None, value: Value) -> bool:
    tolerance = FRACTION_TOLERANCE if setting.is_capped else setting.read_tolerance
    if tolerance:
        return isinstance(seen, (int, float)) and abs(seen - value) <= tolerance  # type: ignore[operator]
    return seen == value


def _is_excused(setting: Setting, asked: Settings, *, is_cpu: bool) -> bool:
    """Whether the field is not compared: inert fields, and fields left to the script."""
    if setting.name in asked.inert or (is_cpu and setting.needs_accelerator):
        return True
    return setting.default is None and getattr(asked, setting.name) is None
