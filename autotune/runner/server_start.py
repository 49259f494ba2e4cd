"""Starts a fork server in the surroundings of a trial, before or after the probe."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.protocol.environment import BY_CALL, FORKABLE, PER_TRIAL, PYTHONPATH, TMPDIR
from autotune.protocol.forking import ForkServerSpec
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_server import ForkServer, ForkServerError
from autotune.runner.python_command import own_modules
from autotune.runner.python_path import absolute_entries

USUAL_IMPORTS = ("torch._dynamo",)
"""Modules imported by every script with an optimizer of torch, as the optimizer is made; the slowest after torch."""


def start_server(cold: ColdRunner, job: TrialJob, *, is_before_probe: bool = False) -> ForkServer:
    """A new server, which imports torch and waits for the names of further modules.

    Args:
        cold: Prepares the surroundings of runs.
        job: Job of a trial.
        is_before_probe: Whether the probe is still under way.

    Raises:
        ForkServerError: The server cannot be started.
    """
    workspace = cold.workspace
    try:
        folder = workspace.new_trial()
    except OSError as error:
        raise ForkServerError(f"no server of the imports can be started: {error}") from error
    try:
        environment, spec = _surroundings(cold, job, folder, is_before_probe=is_before_probe)
        return ForkServer(python=job.command[0], environment=environment, spec=spec)
    except OSError as error:
        workspace.remove_trial(folder)
        raise ForkServerError(f"no server of the imports can be started: {error}") from error
    except ForkServerError:
        workspace.remove_trial(folder)
        raise


def give_up(server: ForkServer | None, cold: ColdRunner) -> None:
    """Ends a server that has forked nothing, and removes the server's folder; does nothing without a server."""
    if server is not None:
        server.give_up()
        cold.workspace.remove_trial(server.folder)


def is_of_use(server: ForkServer, cold: ColdRunner, job: TrialJob, imports: tuple[str, ...]) -> bool:
    """Whether a server started before the probe lives, and has the surroundings of a job's trial but for one layer.

    The missing layer is the probe's: installed modules are not expected there.

    Args:
        server: The server.
        cold: Prepares the surroundings of runs.
        job: Job of a trial.
        imports: The script's imports, as the probe has found them.
    """
    expected = _surroundings(cold, job, server.folder, is_before_probe=True)
    is_like_expected = expected == (server.environment, server.spec)
    return server.is_alive() and is_like_expected and set(server.spec.imports) <= set(imports)


def _surroundings(
    cold: ColdRunner, job: TrialJob, folder: Path, *, is_before_probe: bool
) -> tuple[dict[str, str], ForkServerSpec]:
    """Environment and spec of a server for a job's trials."""
    workspace = cold.workspace
    environment = cold.environment(job, TrialPaths(folder))
    for name in (*PER_TRIAL, *BY_CALL):
        environment.pop(name, None)
        if name in os.environ:
            environment[name] = os.environ[name]
    if PYTHONPATH in environment:
        environment[PYTHONPATH] = absolute_entries(environment[PYTHONPATH], job.cwd)
    environment[TMPDIR] = str(workspace.short(folder).temporary)
    spec = ForkServerSpec(
        folder=str(folder),
        layers=workspace.mounts(folder, is_probe=False, is_server=True, is_before_probe=is_before_probe),
        writable=workspace.confinement(None),
        imports=USUAL_IMPORTS if is_before_probe else (),
        own_modules=own_modules(job),
    )
    return {**FORKABLE, **environment}, spec
