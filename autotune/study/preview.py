"""What a search would do: with nothing started, or after the probe alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotune.model.events import Event, ProbeFinished, ProbeStarted
from autotune.model.facts import samples_unit
from autotune.model.outcome import Outcome
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.opened_workspace import open_workspace
from autotune.search.history import FinishedTrial, History
from autotune.search.plan import PlanFinished, plan
from autotune.search.plan_state import Candidate, PlanLimits
from autotune.settings import Settings, Value
from autotune.space.derive import derive_space
from autotune.space.offers import useful_arguments
from autotune.space.search_space import SearchSpace
from autotune.spec import SearchSpec
from autotune.store.repository import check_name
from autotune.store.url import mask_url, resolve_url
from autotune.study.jobs import Jobs
from autotune.study.probing import probe_script
from autotune.study.protection_record import wish_of
from autotune.study.publish import check_config_path
from autotune.study.stop import StopRequest
from autotune.study.target import Target, open_target

NUM_FIRST = 6
"""Settings of the plan that are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The plan of a search. What only the probe can know is empty or None without it."""

    spec: SearchSpec
    machine: str
    device: str
    memory_cap_bytes: int
    storage: str
    """Database URL with its secrets masked."""
    probe: ProbeFinished | None
    searched: tuple[tuple[str, tuple[Value, ...]], ...]
    """(setting, allowed values) of what would be searched."""
    num_settings: int | None
    first: tuple[tuple[Settings, str], ...]
    """First settings of the plan, with their stage, as far as they can be known: see `first_settings`."""


def preview(
    spec: SearchSpec, *, run_probe: bool, on_event: Callable[[Event], None], stop: StopRequest | None = None
) -> Preview:
    """What a search would do. Creates no study and no database.

    Args:
        spec: The search.
        run_probe: Run the script once under its own settings; otherwise nothing is started.
        on_event: Told of the probe.
        stop: May end the probe.

    Raises:
        AutotuneError: What a search would raise before its first trial, but for what only the database knows.
    """
    check_name(spec.study)
    check_config_path(spec)
    storage = resolve_url(spec.storage, Path(spec.cwd))
    target = open_target(spec)
    if not run_probe:
        return _preview(spec, target, storage, None, None)
    began = time.monotonic()
    workspace = open_workspace(cwd=Path(spec.cwd), command=spec.command, wish=wish_of(spec))
    try:
        on_event(ProbeStarted())
        runner = ColdRunner(workspace, target.device)
        jobs = Jobs(spec=spec, target=target)
        facts = probe_script(
            jobs,
            runner,
            workspace.probe_is_through,
            stop or StopRequest(),
            on_event,
            ends_by=began + spec.budget_s,
        )
        wall_s = time.monotonic() - began
    finally:
        workspace.remove()
    target = target.where_it_trains(facts, spec, on_event)
    space = derive_space(facts, target.machine, spec)
    probe = ProbeFinished(
        facts=facts,
        natural=space.script_settings,
        refused=space.refused,
        wall_s=wall_s,
        samples_unit=samples_unit(facts, spec.samples_per_step),
        arguments=useful_arguments(facts, target.machine, spec),
    )
    on_event(probe)
    return _preview(spec, target, storage, probe, space)


def _preview(
    spec: SearchSpec, target: Target, storage: str, probe: ProbeFinished | None, space: SearchSpace | None
) -> Preview:
    return Preview(
        spec=spec,
        machine=f"{target.host.cpu}, {target.host.usable_cpus:g} usable cores, torch {target.host.torch}",
        device=target.device.name,
        memory_cap_bytes=target.cap_bytes,
        storage=mask_url(storage),
        probe=probe,
        searched=tuple((name, space.allowed[name]) for name in space.searched) if space is not None else (),
        num_settings=space.num_settings if space is not None else None,
        first=first_settings(space, PlanLimits(usable_cpus=target.usable_cpus, cap_bytes=target.cap_bytes))
        if space is not None
        else (),
    )


def first_settings(space: SearchSpace, limits: PlanLimits) -> tuple[tuple[Settings, str], ...]:
    """The beginning of the plan if all trials were equally fast; a search looks at the figures before each step.

    Shorter than `NUM_FIRST` where the plan ends before: what comes then is forecast from the trials' figures.
    """
    script_settings = space.script_settings.canonical(device_is_cpu=space.device_is_cpu)
    trials: list[FinishedTrial] = []
    while len(trials) < NUM_FIRST:
        candidate = plan(History(trials, script_settings), space, limits)
        if isinstance(candidate, PlanFinished):
            break
        trials.append(_as_fast_as_all(candidate, len(trials)))
    return tuple((trial.settings, trial.stage) for trial in trials)


def _as_fast_as_all(candidate: Candidate, number: int) -> FinishedTrial:
    return FinishedTrial(
        number=number,
        settings=candidate.settings,
        stage=candidate.stage,
        outcome=Outcome.OK,
        samples_per_second=1.0,
        peak_memory_bytes=None,
        compute_samples_per_second=None,
        data_wait_fraction=None,
        half_width_ratio=None,
    )
