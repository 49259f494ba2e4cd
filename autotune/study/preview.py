"""Previews a search: with nothing started, or after the probe alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from autotune.model.events import OnEvent, ProbeFinished
from autotune.model.outcome import Outcome
from autotune.runner.open_runner import RunnerFactory, open_runner
from autotune.runner.opened_workspace import open_workspace
from autotune.search.history import FinishedTrial, History
from autotune.search.plan import PlanFinished, plan
from autotune.search.plan_state import Candidate, PlanLimits
from autotune.settings import Settings, Value
from autotune.settings.loader_group import num_loaders
from autotune.space.search_space import SearchSpace
from autotune.spec import SearchSpec
from autotune.store.repository import check_name
from autotune.store.url import mask_url, resolve_url
from autotune.study.probing import probe
from autotune.study.protection_record import wish_of
from autotune.study.publish import check_config_path
from autotune.study.stop import StopRequest
from autotune.study.target import Target, open_target

NUM_FIRST = 6
"""Number of settings shown of the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The plan of a search; without a probe, the fields learned by the probe are empty or None."""

    spec: SearchSpec
    machine: str
    device: str
    memory_cap_bytes: int
    storage: str
    """Database URL with the secrets masked."""
    probe: ProbeFinished | None
    searched: tuple[tuple[str, tuple[Value, ...]], ...]
    """(setting, allowed values) of the search."""
    num_settings: int | None
    first: tuple[tuple[Settings, str], ...]
    """First settings of the plan with their stages: see `first_settings`."""


def preview(
    spec: SearchSpec,
    *,
    run_probe: bool,
    on_event: OnEvent,
    stop: StopRequest | None = None,
    open_runner: RunnerFactory = open_runner,
) -> Preview:
    """Plans a search without creating a study or a database.

    Args:
        spec: The search.
        run_probe: Run the script once under the script's own settings; otherwise nothing is started.
        on_event: Receives the events of the probe.
        stop: Ends the probe early.
        open_runner: Builds the runner of the probe.

    Raises:
        AutotuneError: The errors of a search before the first trial, except the errors of the database.
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
        probed = probe(
            spec,
            target,
            workspace,
            open_runner(workspace, target.device),
            stop or StopRequest(),
            on_event,
            ends_by=began + spec.budget_s,
        )
    finally:
        workspace.remove()
    event = probed.event
    on_event(event)
    return _preview(spec, probed.target, storage, event, probed.space)


def _preview(
    spec: SearchSpec, target: Target, storage: str, probe: ProbeFinished | None, space: SearchSpace | None
) -> Preview:
    limits = PlanLimits(
        usable_cpus=target.usable_cpus,
        cap_bytes=target.cap_bytes,
        has_bf16_instructions=target.has_bf16_instructions,
        num_loaders=num_loaders(probe.facts) if probe is not None else 1,
    )
    return Preview(
        spec=spec,
        machine=f"{target.host.cpu}, {target.host.usable_cpus:g} usable cores, torch {target.host.torch}",
        device=target.device.name,
        memory_cap_bytes=target.cap_bytes,
        storage=mask_url(storage),
        probe=probe,
        searched=tuple((name, space.allowed[name]) for name in space.searched) if space is not None else (),
        num_settings=space.num_settings if space is not None else None,
        first=first_settings(space, limits) if space is not None else (),
    )


def first_settings(space: SearchSpace, limits: PlanLimits) -> tuple[tuple[Settings, str], ...]:
    """The first settings of the plan with their stages, for trials of equal speed; a search uses the real figures.

    A plan of fewer than `NUM_FIRST` settings is shown in full; a search then forecasts from the trials' figures.
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
