"""Diagnoses a script in two runs: a probe, and a measurement followed by a look at the training loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.diagnose.advice.advise import advise
from autotune.diagnose.findings import make_diagnosis
from autotune.errors import HostError
from autotune.measure.window_stopping import WindowRule
from autotune.model.diagnosis import Diagnosis
from autotune.model.events import Notice, OnEvent, TrialStarted
from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import PROFILE_FILES
from autotune.runner.open_runner import RunnerFactory, open_runner
from autotune.runner.opened_workspace import open_workspace
from autotune.runner.quiet_wait import QuietWait
from autotune.runner.runner import Runner
from autotune.settings import Settings
from autotune.space.script_settings import misread, script_settings_of, with_readings
from autotune.spec import SearchSpec
from autotune.study.jobs import Jobs
from autotune.study.probing import probe
from autotune.study.protection_record import wish_of
from autotune.study.stop import StopRequest, wait_for
from autotune.study.target import open_target

OBSERVATION_LIMIT_S = 120.0
"""Longest time for the look at the loop, in seconds, beside `STEPS_LOOKED_AT` steps: some seconds for each part."""
STEPS_LOOKED_AT = 40
SHORTER = 0.25
"""Length of the next window relative to the last, for a script that ended before the look at the loop."""
MAX_ATTEMPTS = 3
"""Most runs of a script that ended or failed because of the measurement."""


def diagnose(
    spec: SearchSpec,
    *,
    profiles_to: Path | None = None,
    on_event: OnEvent,
    stop: StopRequest | None = None,
    open_runner: RunnerFactory = open_runner,
) -> Diagnosis:
    """Measures the script under the script's own settings, looks at the training loop, and advises. Stores nothing.

    Args:
        spec: The script, the device and the memory cap; ranges are ignored.
        profiles_to: Folder for profiles; None = no profiles.
        on_event: Receives every event.
        stop: Ends the diagnosis early.
        open_runner: Builds the runner.

    Raises:
        EveryTrialFailedError: The script failed, or ended before the look at the loop.
        NoFeasibleSettingsError: The script needs more memory than the cap.
        HostError: The device is missing or in use, or a profile cannot be written.
        InterruptedError: The user asked to stop.
    """
    stop = stop or StopRequest()
    target = open_target(spec)
    workspace = open_workspace(
        cwd=Path(spec.cwd), command=spec.command, wish=replace(wish_of(spec), keeps_network=True)
    )
    try:
        runner = open_runner(workspace, target.device)
        probed = probe(spec, target, workspace, runner, stop, on_event, learns_reduction=False)
        target, facts, script_settings = probed.target, probed.facts, script_settings_of(probed.facts)
        on_event(Notice(message="it runs once more, to be measured and looked at", is_warning=False))
        jobs = Jobs(spec=spec, target=target, facts=facts, script_settings=script_settings)
        job = _job(jobs, script_settings, facts, profiles=profiles_to is not None)
        on_event(TrialStarted(number=0, settings=script_settings, stage="diagnosis"))
        quiet = QuietWait(target.device, is_shared=spec.share_gpu)
        result = _run(job, open_runner(workspace, target.device), quiet, stop, profiles_to)
    finally:
        workspace.remove()
    readings = misread(script_settings, (rank.observed for rank in result.ranks), device_is_cpu=target.device.is_cpu)
    facts = with_readings(facts, readings)
    diagnosis = make_diagnosis(spec, target, script_settings_of(facts), facts, result)
    written = _written(profiles_to) if profiles_to is not None else ()
    return replace(diagnosis, advice=advise(diagnosis), profiles=written)


def _job(jobs: Jobs, script_settings: Settings, facts: ScriptFacts, *, profiles: bool) -> TrialJob:
    """A measurement as long as a final, followed by a look at the loop."""
    job = jobs.trial(script_settings, is_final=True)
    limit_s = job.total_limit_s + OBSERVATION_LIMIT_S + STEPS_LOOKED_AT * facts.step_s
    return replace(job, diagnoses=True, profiles=profiles, total_limit_s=limit_s)


def _run(job: TrialJob, runner: Runner, quiet: QuietWait, stop: StopRequest, profiles_to: Path | None) -> TrialResult:
    """The result of a run on a quiet machine; of another run when the measurement itself ended the script early."""
    for _ in range(MAX_ATTEMPTS):
        found = quiet.wait(lambda: bool(stop.level))
        handle = runner.start(job)
        wait_for(handle, stop)
        try:
            result = found.written_with(handle.result(profiles_to=profiles_to))
        except OSError as error:
            raise HostError(f"The profiles cannot be written: {error}.", "Choose another folder with --out.") from error
        changed = _changed(job, result)
        if changed is None:
            return result
        job = changed
    return result


def _changed(job: TrialJob, result: TrialResult) -> TrialJob | None:
    """A job with a better chance; None when no other job has one."""
    if not job.keeps_epochs and any(rank.is_past_its_epoch for rank in result.ranks):
        return replace(job, keeps_epochs=True)
    if job.script_steps is None and result.has_ended_early:
        return replace(job, script_steps=result.ranks[0].num_steps)
    if result.outcome is Outcome.OK and not any(rank.observation for rank in result.ranks):
        return replace(job, request=replace(job.request, window=_shortened(job.request.window)))
    return None


def _shortened(rule: WindowRule) -> WindowRule:
    return replace(rule, min_window_s=SHORTER * rule.min_window_s, max_window_s=SHORTER * rule.max_window_s)


def _written(folder: Path) -> tuple[str, ...]:
    return tuple(str(folder / name) for name in PROFILE_FILES if (folder / name).exists())
