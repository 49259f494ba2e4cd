"""Builds a session for each measurement of a process, and hands on the watches of the process."""

from __future__ import annotations

from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.trial.live.windows import Windows
from autotune.trial.meter.durations import PartTimes
from autotune.trial.start import active_session
from autotune.trial.start.early_seams import Prelude
from autotune.trial.torch.patching import make_rebindable
from autotune.trial.trial_session import MeasuredSession


def first_session(job: TrialJob, paths: TrialPaths, times: PartTimes, prelude: Prelude) -> MeasuredSession:
    """The session of a process's first measurement. Later sessions follow in a process that serves."""
    if not job.serves:
        return MeasuredSession(job, paths, times, prelude)
    make_rebindable()

    def later_session(before: MeasuredSession, job: TrialJob, paths: TrialPaths, times: PartTimes) -> MeasuredSession:
        session = MeasuredSession(job, paths, times, prelude, windows=windows, before=before)
        active_session.session = session
        return session

    windows = Windows(paths, later_session)
    return MeasuredSession(job, paths, times, prelude, windows=windows)
