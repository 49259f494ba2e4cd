"""Runs the script's beginning once for many trials: the process waits where settings begin to matter.

The process comes to the seam (`prelude_end.py`), checks that forks are sound (`fork_hazards.py`, `fork_state.py`),
reports, and forks a supervisor for each trial. In a trial the call returns, the settings come into force, and the
script goes on as if the beginning had run for this trial alone.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from autotune.protocol.codec import decode, encode
from autotune.protocol.environment import STARTED_AT, TRIAL
from autotune.protocol.forking import PreludeHello
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import SupervisorSpec
from autotune.settings import Group, Settings, Value
from autotune.trial.meter.durations import PartTimes
from autotune.trial.probe.thread_detector import ThreadDetector
from autotune.trial.start import active_session, fork_hazards, forked_environment, forked_heap, progress_bars
from autotune.trial.start.early_seams import Prelude
from autotune.trial.start.fork_state import ForkState, Standard, is_known, why_not_restorable
from autotune.trial.start.known_devices import KnownDevices
from autotune.trial.start.measured_sessions import first_session
from autotune.trial.start.prelude_end import Seam
from autotune.trial.trial_session import MeasuredSession

WHO = "the script's beginning"


class PreparedSession:
    """Session of the waiting process, and of each trial until the trial's settings are known.

    Args:
        job: Job of the waiting process: the script under its own settings.
        prelude: Seams already attached.
        address: Path of the tuner's socket.
    """

    def __init__(self, job: TrialJob, prelude: Prelude, address: str) -> None:
        self._facts, self._prelude, self._address = job.facts, prelude, address
        self._seam, self._threads = Seam(self._reached), ThreadDetector()
        self._devices = KnownDevices(job.facts.cuda_devices if job.facts is not None else None)
        self._standard = Standard()
        self._session: MeasuredSession | None = None
        self._knobs: dict[str, str] = {}
        self._began = time.monotonic()

    def install(self) -> None:
        """Attaches to the calls that settings may change."""
        self._prelude.steps.policy = self._step
        self._seam.install()
        self._threads.install()
        self._devices.install()

    # What the public API asks of a session -------------------------------------------------------------------

    @property
    def settings(self) -> Settings | None:
        """The trial's settings; the first question for the settings is a place where settings matter."""
        self._seam.reach("autotune.load asks for the settings")
        return self._session.settings if self._session is not None else None

    def claim(self, group: Group) -> None:
        """Tells that the script applies this group itself."""
        if self._session is not None:
            self._session.claim(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Does nothing: the probe has told the knobs."""

    def observe(self, field: str, value: Value) -> None:
        """Notes a setting that the script applied itself."""
        if self._session is not None:
            self._session.observe(field, value)

    # The seam ------------------------------------------------------------------------------------------------

    def _step(self, optimizer: torch.optim.Optimizer, call: Any) -> tuple[Any, bool]:
        self._seam.reach("an optimizer steps")
        policy = self._prelude.steps.policy
        return (call(), True) if policy is None or policy == self._step else policy(optimizer, call)

    def _reached(self, place: str) -> None:
        """Waits for trials; returns in each trial, with the trial's settings in force."""
        prepared_s = time.monotonic() - self._began
        self._threads.remove()
        self._devices.remove()
        progress_bars.end_monitor()
        is_ours = forked_heap.freeze()
        reason = self._why_not()
        kept = ForkState() if not reason else None
        hello = PreludeHello(
            reason=reason, place=place, prepared_s=prepared_s, asks_for_threads=self._threads.is_asked_for
        )
        tuner = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        tuner.connect(self._address)
        tuner.sendall(encode(hello).encode())
        if kept is None:
            os._exit(0)
        from autotune.trial.start.fork_requests import serve  # Loads the supervisor, which cold trials do without.

        spec = serve(tuner, kept=kept.numbers)
        if spec is None:
            os._exit(0)  # The tuner is through, or gone.
        if is_ours:
            forked_heap.thaw()
        self._go_on(spec, kept)

    def _go_on(self, spec: SupervisorSpec, kept: ForkState) -> None:
        """Turns this process into the requested trial."""
        now = time.monotonic()
        forked_environment.change_environment(spec.environment)
        forked_environment.renew_redirection()
        kept.restore()
        progress_bars.renew_lock()
        paths = TrialPaths(Path(os.environ[TRIAL]))
        job = decode(TrialJob, paths.job.read_text())
        times = PartTimes(asked_at=float(os.environ[STARTED_AT]), ready_at=now, attached_at=now)
        self._prelude.steps.policy = None
        self._session = active_session.session = first_session(job, paths, times, self._prelude)
        self._session.install()
        self._devices.catch_up()

    def _why_not(self) -> str:
        """Why forks are not sound here; empty when forks are sound."""
        if threading.current_thread() is not threading.main_thread():
            return f"{WHO} trains in a thread of its own"
        if self._standard.is_changed():
            return f"{WHO} has put another file in the place of a standard stream"
        unkept = why_not_restorable()
        if unkept:
            return f"{WHO} {unkept}"
        # A script that has set the number of threads gets a pool from torch; torch renews the pool after a fork.
        own_threads = torch.get_num_threads() - 1 if self._facts is not None and self._facts.own_threads else 0
        return fork_hazards.why_not(
            WHO,
            is_known=is_known,
            num_known_tasks=1 + own_threads,
            num_known_semaphores=progress_bars.num_semaphores(),
        )
