"""A diagnosis from beginning to end: the script runs once to be known and once to be measured and looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from autotune.advice.advise import advise
from autotune.errors import EveryTrialFailedError, HostError, NoFeasibleSettingsError
from autotune.measure.bottleneck import diagnose as find_bottleneck
from autotune.model.diagnosis import Diagnosis
from autotune.model.events import Event, Notice, ProbeStarted, TrialStarted
from autotune.model.facts import ScriptFacts, samples_unit
from autotune.model.job import PROFILE_FILES, TrialJob
from autotune.model.result import PAST_ITS_EPOCH, TrialResult
from autotune.runner.cold import ColdRunner
from autotune.runner.judge import ENDED_EARLY
from autotune.runner.workspace import Workspace
from autotune.settings import Settings
from autotune.space.natural import natural_settings
from autotune.spec import SearchSpec
from autotune.tuner.jobs import Jobs
from autotune.tuner.probing import probe_script
from autotune.tuner.site import Site, open_site
from autotune.tuner.stop import StopRequest, wait_for

OBSERVATION_LIMIT_S = 120.0
"""What looking may take on top of a trial: some seconds for each part, more where steps are long."""
STEPS_LOOKED_AT = 40
MAX_ATTEMPTS = 3
"""Runs of a script that ends, or fails, where it would not if its epochs were left alone."""


def diagnose(
    spec: SearchSpec,
    *,
    profiles_to: Path | None = None,
    on_event: Callable[[Event], None],
    stop: StopRequest | None = None,
) -> Diagnosis:
    """Measures the script under its own settings, looks at its loop, and says what to do. Nothing is stored.

    Args:
        spec: The script, the device and the cap; what is to be searched is not looked at.
        profiles_to: Folder for profiles; None = none are made.
        on_event: Told how it goes.
        stop: May end it.

    Raises:
        EveryTrialFailedError: The script failed, or ended before it could be looked at.
        NoFeasibleSettingsError: It needs more memory than the cap.
        HostError: The device is not there or not free, or a profile cannot be written.
        InterruptedError: A stop was asked for.
    """
    stop = stop or StopRequest()
    site = open_site(spec)
    workspace = Workspace.open(None, cwd=Path(spec.cwd), command=spec.command)
    try:
        on_event(ProbeStarted())
        runner = ColdRunner(workspace, site.device)
        facts = probe_script(
            Jobs(spec=spec, site=site), runner, workspace.probe_is_through, stop, learns_reduction=False
        )
        site, natural = site.where_it_trains(facts, spec, on_event).as_probed(facts), natural_settings(facts)
        on_event(Notice(message="it runs once more, to be measured and looked at", is_warning=False))
        jobs = Jobs(spec=spec, site=site, facts=facts, natural=natural)
        job = _job(jobs, natural, facts, profiles=profiles_to is not None)
        on_event(TrialStarted(number=0, settings=natural, stage="diagnosis"))
        result = _run(job, ColdRunner(workspace, site.device), stop, profiles_to)
    finally:
        workspace.remove()
    diagnosis = make_diagnosis(spec, site, natural, facts, result)
    written = _written(profiles_to) if profiles_to is not None else ()
    return replace(diagnosis, advice=advise(diagnosis), profiles=written)


def make_diagnosis(
    spec: SearchSpec, site: Site, natural: Settings, facts: ScriptFacts, result: TrialResult
) -> Diagnosis:
    """The figures of a trial that was looked at, without advice.

    Raises:
        EveryTrialFailedError: It was not measured, or ended before it could be looked at.
        NoFeasibleSettingsError: It needs more memory than the cap.
        InterruptedError: It was ended by the user.
    """
    measurement = result.measurement
    lead = result.ranks[0] if result.ranks else None
    observation = lead.observation if lead is not None else None
    if measurement is None or lead is None or observation is None:
        raise _why_not(result)
    rate, compute = measurement.steady_samples_per_second, measurement.compute_samples_per_second
    scale = rate / measurement.samples_per_second
    surroundings = result.surroundings
    utilization = surroundings.device_utilization if surroundings is not None else None
    window = [block for block in lead.blocks if block.phase == "window"]
    per_step = sum(block.num_samples for block in window) / sum(block.num_steps for block in window)
    bottleneck = find_bottleneck(
        rate,
        max(compute, rate) if compute is not None else None,
        measurement.data_wait_fraction,
        device_is_cpu=site.device.is_cpu,
        device_busy_fraction=min(1.0, utilization) if utilization is not None else None,
    )
    return Diagnosis(
        script=spec.script,
        machine=f"{site.host.device}, {site.host.usable_cpus:g} usable cores, torch {site.host.torch}",
        device=site.device.kind,
        is_cpu=site.device.is_cpu,
        usable_cpus=site.usable_cpus,
        samples_unit=samples_unit(facts, spec.samples_per_step),
        samples_per_second=rate,
        interval=(measurement.low * scale, measurement.high * scale),
        ceiling_samples_per_second=bottleneck.ceiling_samples_per_second,
        bottleneck=bottleneck.kind,
        data_wait_fraction=measurement.data_wait_fraction,
        samples_per_step=per_step * facts.world_size,
        restart_s=measurement.restart_s,
        epoch_s=measurement.epoch_s,
        device_utilization=utilization,
        memory_cap_bytes=site.cap_bytes,
        peak_memory_bytes=result.peak_memory_bytes,
        peak_allocated_bytes=lead.peak_allocated_bytes,
        outside_allocator_bytes=result.outside_allocator_bytes,
        natural=natural,
        facts=facts,
        observation=observation,
        notes=tuple(_notes(result)),
    )


def _job(jobs: Jobs, natural: Settings, facts: ScriptFacts, *, profiles: bool) -> TrialJob:
    """A measurement as long as one of the finals, with a look at the loop after it."""
    job = jobs.trial(natural, is_final=True)
    limit_s = job.total_limit_s + OBSERVATION_LIMIT_S + STEPS_LOOKED_AT * facts.step_s
    return replace(job, diagnoses=True, profiles=profiles, total_limit_s=limit_s)


def _run(job: TrialJob, runner: ColdRunner, stop: StopRequest, profiles_to: Path | None) -> TrialResult:
    """The result; of another run where the script took its epochs, or the length of its training, amiss."""
    for _ in range(MAX_ATTEMPTS):
        handle = runner.start(job)
        wait_for(handle, stop)
        try:
            result = handle.result(profiles_to=profiles_to)
        except OSError as error:
            raise HostError(f"The profiles cannot be written: {error}.", "Choose another folder with --out.") from error
        changed = _changed(job, result)
        if changed is None:
            return result
        job = changed
    return result


def _changed(job: TrialJob, result: TrialResult) -> TrialJob | None:
    """The job that may do better; None where none would."""
    if not job.keeps_epochs and any(PAST_ITS_EPOCH in rank.notes for rank in result.ranks):
        return replace(job, keeps_epochs=True)
    if job.script_steps is None and result.reason == ENDED_EARLY and result.ranks:
        return replace(job, script_steps=result.ranks[0].num_steps)
    return None


def _why_not(result: TrialResult) -> Exception:
    if result.outcome == "interrupted":
        return InterruptedError()
    if result.outcome.is_infeasible:
        return NoFeasibleSettingsError(
            f"The script under its own settings does not fit: {result.reason}",
            "Raise --memory-cap, or start from a smaller batch.",
        )
    reason = result.reason or "it ended before its loop could be looked at."
    printed = result.log_tail.strip()
    hint = f"The last lines that it printed:\n{printed[-2000:]}" if printed else "Give it more to do, as more epochs."
    return EveryTrialFailedError(f"The script cannot be diagnosed: {reason}", hint)


def _notes(result: TrialResult) -> Iterator[str]:
    yield from result.notes
    measurement = result.measurement
    if measurement is not None and not measurement.is_converged:
        yield "The rate did not settle within the time of the measurement; see its interval."
    if measurement is not None and measurement.is_primed:
        yield "Loader queues may have been full when the measurement began, so that the rate may be too high."
    if result.escaped:
        yield f"The script wrote to files of yours in spite of the layer: {', '.join(result.escaped[:5])}."


def _written(folder: Path) -> tuple[str, ...]:
    return tuple(str(folder / name) for name in PROFILE_FILES if (folder / name).exists())
