"""The first thing that runs after `import torch` in a process of a trial."""

from __future__ import annotations

import importlib
import json
import os
import time
from pathlib import Path

import torch

from autotune.protocol.codec import from_plain
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.sandbox.redirection import folder_renames
from autotune.trial.meter.durations import PartTimes
from autotune.trial.probe.probe_session import ProbeSession
from autotune.trial.run_session import RunSession
from autotune.trial.start import active_session
from autotune.trial.start.early_seams import Prelude
from autotune.trial.start.prepared_start import PreparedSession
from autotune.trial.trial_session import MeasuredSession


def install(ready_at: float | None = None) -> None:
    """Reads the job of this process and attaches to torch accordingly.

    Args:
        ready_at: When the process could run the script, on the clock of `time.monotonic`; None = now.
    """
    attached_at = time.monotonic()
    if "AUTOTUNE_JOB" in os.environ:
        RunSession(from_plain(TrialJob, json.loads(os.environ["AUTOTUNE_JOB"]))).install()
        return
    if "AUTOTUNE_REDIRECT" in os.environ:
        importlib.import_module("autotune.sandbox.redirect").install_torch(torch)
    elif os.geteuid() != 0:
        folder_renames.install()
    paths = TrialPaths(Path(os.environ["AUTOTUNE_TRIAL"]))
    job = from_plain(TrialJob, json.loads(paths.job.read_text()))
    started_at = float(os.environ.get("AUTOTUNE_STARTED_AT", attached_at))
    torch.manual_seed(job.seed)  # Other generators were seeded before: by now the script may have done so itself.
    session: ProbeSession | MeasuredSession | PreparedSession
    address = os.environ.pop("AUTOTUNE_MEETING", None)
    if job.mode is not Mode.TRIAL:
        session = ProbeSession(job, paths, started_at)
    else:
        prelude = Prelude()
        prelude.attach()
        if address is not None:
            session = PreparedSession(job, prelude, address)
        else:
            ready_at = attached_at if ready_at is None else ready_at
            times = PartTimes(asked_at=started_at, ready_at=ready_at, attached_at=attached_at)
            session = MeasuredSession(job, paths, times, prelude)
    session.install()
    active_session.session = session
