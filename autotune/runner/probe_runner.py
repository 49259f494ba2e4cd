"""Starts the probe, and beside the probe the process that trials will be forked from.

The import of torch took 10 s of a search of two minutes on a host with an H100, after a probe with the same import.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from autotune.host import DeviceInfo, usable_cpus
from autotune.model.facts import ScriptFacts
from autotune.protocol.job import Mode, TrialJob
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner, why_never_forked
from autotune.runner.fork_server import ForkServer, ForkServerError
from autotune.runner.handle import Handle
from autotune.runner.live_runner import LiveRunner
from autotune.runner.server_start import give_up, start_server

LEAST_CPUS = 4
"""Usable CPUs from which a second import of torch does not slow the probe down."""


class ProbeRunner:
    """Runs the probe of a study, and makes the runner of the study's trials.

    Args:
        cold: Starts the probe, and prepares the surroundings of all runs.
        devices: Devices of a trial, as the values of CUDA_VISIBLE_DEVICES; empty = all.
    """

    def __init__(self, cold: ColdRunner, devices: tuple[str, ...] = ()) -> None:
        self._cold, self._devices = cold, devices
        self._server: ForkServer | None = None
        self._has_begun = False

    def start(self, job: TrialJob) -> Handle:
        """Starts a probe; beside the first probe, the fork server of the trials begins with its imports."""
        run = self._cold.start(job)
        if not self._has_begun:
            self._has_begun = True
            # The variables of every later run, of which the second run of the probe is the first.
            self._begin(replace(job, mode=Mode.SPLIT_PROBE, devices=self._devices))
        return run

    def for_trials(self, facts: ScriptFacts, device: DeviceInfo) -> LiveRunner:
        """The runner of the trials, which owns the fork server from now on.

        Args:
            facts: Findings of the probe.
            device: Device that trains, as the probe has shown.
        """
        server, self._server = self._server, None
        return LiveRunner(ForkRunner(ColdRunner(self._cold.workspace, device), facts, begun=server))

    def close(self) -> None:
        """Ends the fork server, unless the runner of the trials has it."""
        server, self._server = self._server, None
        give_up(server, self._cold)

    def _begin(self, job: TrialJob) -> None:
        # Without layers, imports before the end of the probe could write to the user's files.
        if not self._cold.workspace.has_layers or usable_cpus() < LEAST_CPUS or why_never_forked(job):
            return
        with suppress(ForkServerError):  # The trials start a server of their own, and tell why none starts.
            self._server = start_server(self._cold, job, is_before_probe=True)
