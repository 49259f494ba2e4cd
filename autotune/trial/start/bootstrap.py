"""Attaches a trial to torch, right after the process's import of torch."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from autotune.protocol.codec import decode
from autotune.protocol.environment import JOB, PRELUDE_ADDRESS, REDIRECT, STARTED_AT, TRIAL
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.sandbox import redirect
from autotune.sandbox.redirection import folder_renames
from autotune.trial.counted_run import CountedRun
from autotune.trial.meter.durations import PartTimes
from autotune.trial.probe.probe_session import ProbeSession
from autotune.trial.run_session import RunSession
from autotune.trial.start import active_session
from autotune.trial.start.early_seams import Prelude
from autotune.trial.start.measured_sessions import first_session
from autotune.trial.start.prepared_start import PreparedSession
from autotune.trial.trial_session import MeasuredSession


def install(ready_at: float | None = None) -> None:
    """Reads the job of this process and attaches the job's session to torch.

    Args:
        ready_at: When the process could run the script, in seconds of `time.monotonic`; None = now.
    """
    attached_at = time.monotonic()
    if JOB in os.environ:
        run = decode(TrialJob, os.environ[JOB])
        if not _is_of_keras(run):
            RunSession(run).install()
        return
    if REDIRECT in os.environ:
        redirect.install_torch(torch)
    elif os.geteuid() != 0:
        folder_renames.install()
    paths = TrialPaths(Path(os.environ[TRIAL]))
    job = decode(TrialJob, paths.job.read_text())
    started_at = float(os.environ.get(STARTED_AT, attached_at))
    torch.manual_seed(job.request.seed)  # Other generators were seeded earlier: the script may have seeded them since.
    if _is_of_keras(job):
        return  # `trial.keras.attach` has the session, or will have it.
    session: ProbeSession | MeasuredSession | PreparedSession | CountedRun
    ready_at = attached_at if ready_at is None else ready_at
    times = PartTimes(asked_at=started_at, ready_at=ready_at, attached_at=attached_at)
    address = os.environ.pop(PRELUDE_ADDRESS, None)
    if job.mode is Mode.RUN:
        session = CountedRun(job, paths, times)
    elif job.mode is not Mode.TRIAL:
        session = ProbeSession(job, paths, started_at)
    else:
        prelude = Prelude()
        prelude.attach()
        if address is not None:
            session = PreparedSession(job, prelude, address)
        else:
            session = first_session(job, paths, times, prelude)
    session.install()
    active_session.session = session


def _is_of_keras(job: TrialJob) -> bool:
    """Whether the script trains by Keras, or in a loop of its own without torch's optimizers."""
    return job.facts is not None and job.facts.keras is not None
