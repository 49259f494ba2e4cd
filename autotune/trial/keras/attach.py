"""Attaches a trial to Keras right after its import, or to a loop of the script's own at the first `autotune.step`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from autotune.protocol.codec import decode
from autotune.protocol.environment import JOB, REDIRECT, SEED, STARTED_AT, TRIAL
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.sandbox.redirection import folder_renames
from autotune.trial.keras.keras_probe import KerasProbe
from autotune.trial.keras.keras_run import KerasRun
from autotune.trial.keras.keras_session import KerasSession
from autotune.trial.keras.keras_trial import KerasTrial
from autotune.trial.meter.durations import PartTimes
from autotune.trial.start import active_session

_session: KerasSession | None = None
"""The session of this process; None before the import of Keras or an engine, and before the first own step."""


def imported(name: str, ready_at: float | None = None) -> None:
    """Attaches this process's session after an import.

    Args:
        name: The imported module: `keras`, `tensorflow` or `jax`.
        ready_at: When the process could run the script, in seconds of `time.monotonic`; None = now.
    """
    session = session_of_process(ready_at)
    if session is None:
        return
    if name == "keras" and SEED in os.environ:
        sys.modules[name].utils.set_random_seed(int(os.environ[SEED]))
    session.imported(name)


def session_of_process(ready_at: float | None = None) -> KerasSession | None:
    """The session of this process, made at the first call.

    None outside a search, in real training without settings of Keras, and in trials of a script that trains by torch.

    Args:
        ready_at: When the process could run the script, in seconds of `time.monotonic`; None = now.
    """
    global _session
    if _session is None:
        session = _new_session(time.monotonic() if ready_at is None else ready_at)
        if session is not None:
            if REDIRECT not in os.environ and os.geteuid() != 0 and TRIAL in os.environ:
                folder_renames.install()
            session.install()
            if active_session.session is None:
                active_session.session = session
            _session = session
    return _session


def _new_session(ready_at: float) -> KerasProbe | KerasTrial | KerasRun | None:
    if JOB in os.environ:
        job = decode(TrialJob, os.environ[JOB])
        return KerasRun(job) if job.facts is not None and job.facts.keras is not None else None
    if TRIAL not in os.environ:
        return None
    attached_at = time.monotonic()
    paths = TrialPaths(Path(os.environ[TRIAL]))
    job = decode(TrialJob, paths.job.read_text())
    asked_at = float(os.environ.get(STARTED_AT, attached_at))
    if job.mode is Mode.PROBE:
        return KerasProbe(job, paths, asked_at)
    if job.facts is None or job.facts.keras is None:
        return None
    return KerasTrial(job, paths, PartTimes(asked_at=asked_at, ready_at=ready_at, attached_at=attached_at))
