"""Builds the runner of a study, in one place."""

from __future__ import annotations

from typing import Protocol

from autotune.host import DeviceInfo
from autotune.model.facts import ScriptFacts
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.live_runner import LiveRunner
from autotune.runner.runner import Runner
from autotune.sandbox.workspace import Workspace


class RunnerFactory(Protocol):
    """Builds the runner of a study. A caller may hand in a factory of simulated runners."""

    def __call__(self, workspace: Workspace, device: DeviceInfo, facts: ScriptFacts | None = None) -> Runner:
        """The runner of the probe without `facts`, and of the trials with the facts of the probe."""


def open_runner(workspace: Workspace, device: DeviceInfo, facts: ScriptFacts | None = None) -> Runner:
    """A runner of real processes; the caller closes the runner.

    Args:
        workspace: Folder written by the runs.
        device: Device that trains.
        facts: Facts of the probe: trials are forked, or measured live if the job serves further requests; None = start
            every run cold.
    """
    cold = ColdRunner(workspace, device)
    return LiveRunner(ForkRunner(cold, facts)) if facts is not None else cold
