"""The script's own beginning, run once: it waits where its settings begin to matter, and trials go on from there.

This process comes to the seam (`prelude_end.py`), checks that it can be forked there (`fork_hazards.py`,
`fork_state.py`), says so, and forks one supervisor for every trial. In the trial the call returns, the settings are put
in force, and the script goes on as if it had run for this trial alone.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from autotune.protocol.codec import from_plain
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import SupervisorSpec
from autotune.settings import Group, Settings, Value
from autotune.trial.meter.durations import PartTimes
from autotune.trial.probe.thread_detector import ThreadDetector
from autotune.trial.start import active_session, fork_hazards, forked_heap, forked_start, progress_bars
from autotune.trial.start.early_seams import Prelude
from autotune.trial.start.fork_state import ForkState, Standard, is_known, why_not_restorable
from autotune.trial.start.known_devices import KnownDevices
from autotune.trial.start.prelude_end import Seam
from autotune.trial.trial_session import MeasuredSession

PARKING = "autotune.runner.fork_server_loop"
"""The room that starts processes has the loop that forks supervisors; named, not imported."""
WHO = "the script's beginning"


class PreparedSession:
    """Stands for the trials' sessions until there is one: `autotune.load` asks it for the settings, too.

    Args:
        job: Of the process that prepares: the script as it is.
        prelude: What is attached already.
        address: Of the socket at which the tuner waits.
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
        """Attaches to the places where settings matter."""
        self._prelude.steps.policy = self._step
        self._seam.install()
        self._threads.install()
        self._devices.install()

    # What the public API asks of a session -------------------------------------------------------------------

    @property
    def settings(self) -> Settings | None:
        """The trial's settings: where they are asked for, they matter."""
        self._seam.reach("autotune.load asks for the settings")
        return self._session.settings if self._session is not None else None

    def claim(self, group: Group) -> None:
        """The script applies this group itself."""
        if self._session is not None:
            self._session.claim(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Known from the probe already."""

    def observe(self, field: str, value: Value) -> None:
        """Notes a setting that the script put in force itself."""
        if self._session is not None:
            self._session.observe(field, value)

    # The seam ------------------------------------------------------------------------------------------------

    def _step(self, optimizer: torch.optim.Optimizer, call: Any) -> tuple[Any, bool]:
        self._seam.reach("an optimizer steps")
        policy = self._prelude.steps.policy
        return (call(), True) if policy is None or policy == self._step else policy(optimizer, call)

    def _reached(self, place: str) -> None:
        """Waits here for trials; returns in each of them, its settings in force."""
        prepared_s = time.monotonic() - self._began
        self._threads.remove()
        self._devices.remove()
        progress_bars.end_monitor()
        is_ours = forked_heap.freeze()
        reason = self._why_not()
        kept = ForkState() if not reason else None
        said = {
            "reason": reason,
            "place": place,
            "prepared_s": prepared_s,
            "asks_for_threads": self._threads.is_asked_for,
        }
        tuner = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        tuner.connect(self._address)
        tuner.sendall(json.dumps(said).encode())
        if kept is None:
            os._exit(0)
        serve = importlib.import_module(PARKING).serve
        spec = serve(tuner, kept=kept.numbers)
        if spec is None:
            os._exit(0)  # The tuner needs no more trials, or is gone.
        if is_ours:
            forked_heap.thaw()
        self._go_on(spec, kept)

    def _go_on(self, spec: SupervisorSpec, kept: ForkState) -> None:
        """Makes this process the trial that was asked for."""
        now = time.monotonic()
        forked_start.change_environment(spec.environment)
        forked_start.renew_redirection()
        kept.restore()
        progress_bars.renew_lock()
        paths = TrialPaths(Path(os.environ["AUTOTUNE_TRIAL"]))
        job = from_plain(TrialJob, json.loads(paths.job.read_text()))
        times = PartTimes(asked_at=float(os.environ["AUTOTUNE_STARTED_AT"]), ready_at=now, attached_at=now)
        self._prelude.steps.policy = None
        self._session = active_session.session = MeasuredSession(job, paths, times, self._prelude)
        self._session.install()
        self._devices.catch_up()

    def _why_not(self) -> str:
        """Why no trial can be forked here soundly; empty when it can."""
        if threading.current_thread() is not threading.main_thread():
            return f"{WHO} trains in a thread of its own"
        if self._standard.is_changed():
            return f"{WHO} has put another file in the place of a standard stream"
        unkept = why_not_restorable()
        if unkept:
            return f"{WHO} {unkept}"
        # torch keeps a pool of so many threads once a script has set their number; it is made anew after a fork.
        own_threads = torch.get_num_threads() - 1 if self._facts is not None and self._facts.own_threads else 0
        return fork_hazards.why_not(
            WHO,
            is_known=is_known,
            num_known_tasks=1 + own_threads,
            num_known_semaphores=progress_bars.num_semaphores(),
        )
