"""Corrects the script's own settings after the script's first trial, when the probe had read other values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.errors import SearchSpaceError
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.settings import text_of
from autotune.space.derive import derive_space
from autotune.space.script_settings import misread, script_settings_of, with_readings
from autotune.space.search_space import SearchSpace
from autotune.study.jobs import Jobs


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """New facts, space and jobs for a search after the first trial has contradicted the probe."""

    facts: ScriptFacts
    space: SearchSpace
    jobs: Jobs
    message: str
    """One sentence for the user."""


def correction_of(result: TrialResult, jobs: Jobs) -> Correction | None:
    """The correction that follows from a trial of the script's own settings; None when the trial agrees with the probe.

    When the user's ranges and fixed values leave no search space with the new facts, nothing is corrected, and the
    trial still counts.

    Args:
        result: Result of the trial.
        jobs: Source of the trial, with the facts and settings of the probe.
    """
    facts, script_settings = jobs.facts, jobs.script_settings
    assert facts is not None and script_settings is not None
    readings = misread(
        script_settings, (rank.observed for rank in result.ranks), device_is_cpu=jobs.target.device.is_cpu
    )
    if not readings:
        return None
    facts = with_readings(facts, readings)
    try:
        space = derive_space(facts, jobs.target.machine, jobs.spec)
    except SearchSpaceError:
        return None
    own = script_settings_of(facts)
    observed = ", ".join(f"{name}={text_of(getattr(own, name))}" for name in sorted(readings))
    taken = ", ".join(f"{name}={text_of(getattr(script_settings, name))}" for name in sorted(readings))
    message = f"Your script's own settings are {observed}, as its first trial shows; the probe had read {taken}."
    jobs = replace(jobs, facts=facts, script_settings=space.script_settings)
    return Correction(facts=facts, space=space, jobs=jobs, message=message)
