"""Derives the script's own settings from the facts of the probe and of the first trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from autotune.errors import SearchSpaceError
from autotune.model.facts import ScriptFacts
from autotune.settings import GROUP_OF_FIELD, INERT_ON_CPU, SETTINGS, Settings, Value
from autotune.space.ranges import parse_value
from autotune.space.search_space import SCRIPTS_OWN

OURS = frozenset(setting.name for setting in SETTINGS if setting.is_capped)
"""Settings read back as the memory cap, and not as the script's own value."""


def script_settings_of(facts: ScriptFacts, mapped: Iterable[str] = ()) -> Settings:
    """The script's own settings as the probe saw them, corrected by readings of the script's own trial.

    Args:
        facts: Facts of the probe, with the readings of the trial.
        mapped: Settings and knobs passed to the script as arguments. A knob that the script does not declare gets an
            unknown value of the script's own.
    """
    values: dict[str, object] = {
        "knobs": {**dict.fromkeys(set(mapped) - GROUP_OF_FIELD.keys(), SCRIPTS_OWN), **dict(facts.knobs)}
    }
    for setting in SETTINGS:
        own = setting.own(facts)
        if own is not None:
            values[setting.name] = own
    values.update({name: parse_value(name, text) for name, text in facts.baseline_readings})
    return Settings.from_dict(values)


def misread(
    script_settings: Settings, readings: Iterable[Mapping[str, Value | None]], *, device_is_cpu: bool
) -> dict[str, str]:
    """Settings in which a trial of the script's own settings contradicts `script_settings`, by field, as text.

    Args:
        script_settings: The script's own settings as known before the trial.
        readings: Settings in force in each training process, by field. A field is left out when the processes differ,
            or when a search could not ask for the value.
        device_is_cpu: Whether the script trains on a CPU.
    """
    processes = list(readings)
    agreed = {
        name: value
        for name, value in (processes[0] if processes else {}).items()
        if name in GROUP_OF_FIELD and value is not None and all(other.get(name) == value for other in processes)
    }
    values: dict[str, Any] = {}
    for name in agreed.keys() - OURS - (INERT_ON_CPU.keys() if device_is_cpu else set()):
        try:
            values[name] = parse_value(name, str(agreed[name]))
        except SearchSpaceError:
            continue
    seen = replace(script_settings, **values).canonical(device_is_cpu=device_is_cpu)
    differences = seen.differences(script_settings.canonical(device_is_cpu=device_is_cpu))
    return {name: str(agreed[name]) for name in values if name in differences}


def with_readings(facts: ScriptFacts, readings: Mapping[str, str]) -> ScriptFacts:
    """Facts with the settings that the script's own trial showed.

    Args:
        facts: Facts of the probe.
        readings: Settings from `misread`, added to the readings already in the facts.
    """
    merged = {**dict(facts.baseline_readings), **readings}
    accumulation = int(merged.get("grad_accum_steps", facts.num_micro_batches_per_step))
    return replace(facts, baseline_readings=tuple(sorted(merged.items())), num_micro_batches_per_step=accumulation)
