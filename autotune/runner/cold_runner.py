"""Cold starts: each run of the script is a fresh interpreter under a new supervisor."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from autotune.errors import HostError
from autotune.host import DeviceInfo
from autotune.model.result import StartKind
from autotune.protocol import environment as names
from autotune.protocol.codec import encode
from autotune.protocol.entry_points import SUPERVISOR
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import SupervisorSpec
from autotune.runner.handle import Handle
from autotune.runner.python_path import with_inject
from autotune.runner.runner import Start, Supervisor
from autotune.sandbox.own_files import put
from autotune.sandbox.process_tree import warnings_held_back
from autotune.sandbox.workspace import Workspace
from autotune.settings import GROUP_OF_FIELD
from autotune.spec import without_ours

Launch = Callable[[SupervisorSpec, dict[str, str], TrialPaths], Supervisor]
"""Starts a supervisor, given the trial's spec, environment and files."""


class ColdRunner:
    """Starts runs of the user's script, one at a time."""

    def __init__(self, workspace: Workspace, device: DeviceInfo) -> None:
        self.workspace = workspace
        self._device = device

    def start(self, job: TrialJob, *, start_reason: str = "") -> Handle:
        """Starts a run and returns the run's handle; the result tells of a command that cannot be started.

        Args:
            job: The job to run.
            start_reason: Why no faster start was possible, for the record.

        Raises:
            HostError: There is no room for the trial's folder, or no process can be started.
        """
        return self.start_with(job, self._launch, Start(kind=StartKind.COLD, reason=start_reason))

    def close(self) -> None:
        """Does nothing: no process is kept for later runs."""

    def start_with(self, job: TrialJob, launch: Launch, start: Start) -> Handle:
        """Starts a run in the surroundings of every trial, with a supervisor by `launch`.

        Raises:
            HostError: There is no room for the trial's folder, or no process can be started.
        """
        try:
            folder = self.workspace.new_trial()
            try:
                return self._start(job, TrialPaths(folder), launch, start)
            except BaseException:
                self.workspace.remove_trial(folder)
                raise
        except OSError as error:
            raise HostError(
                f"No trial can be started in {self.workspace.folder}: {error}.",
                "Free some space there, or set TMPDIR to another folder.",
            ) from error

    def _start(self, job: TrialJob, paths: TrialPaths, launch: Launch, start: Start) -> Handle:
        put(paths.job, encode(job), below=self.workspace.folder)
        spec = SupervisorSpec(
            command=job.command,
            cwd=job.cwd,
            layers=self.workspace.mounts(paths.folder, is_probe=job.mode is Mode.PROBE),
            writable=self.workspace.confinement(paths.folder),
            log=str(paths.log),
        )
        scan = self.workspace.scan(Path(job.cwd))
        began = time.monotonic()
        supervisor = launch(spec, self.environment(job, paths), paths)
        return Handle(job, paths, supervisor, self.workspace, self._device, scan, start, began)

    def _launch(
        self, spec: SupervisorSpec, environment: Mapping[str, str], paths: TrialPaths
    ) -> subprocess.Popen[bytes]:
        """Starts a supervisor in a fresh interpreter; the supervisor executes the command."""
        put(paths.supervisor, encode(spec), below=self.workspace.folder)
        with warnings_held_back():
            return subprocess.Popen(
                SUPERVISOR.command(str(paths.supervisor)),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def environment(self, job: TrialJob, paths: TrialPaths) -> dict[str, str]:
        """All variables of a trial's process."""
        environment = without_ours(os.environ, GROUP_OF_FIELD)
        environment |= names.OFFLINE
        if job.mode is not Mode.PROBE:
            environment |= names.HUB_OFFLINE
        environment |= dict(job.environment)
        environment |= {
            names.TRIAL: str(paths.folder),
            names.STARTED_AT: repr(time.monotonic()),
            names.SEED: str(job.request.seed),
            names.TMPDIR: str(self.workspace.short(paths.folder).temporary),
            names.PYTHONPATH: with_inject(environment.get(names.PYTHONPATH, ""), job.cwd),
            "PYTHONUNBUFFERED": "1",
            "TERM": environment.get("TERM", "dumb"),
        }
        if names.MLFLOW_SERVER in environment:  # MLflow has no switch: a folder takes the place of the server.
            environment[names.MLFLOW_SERVER] = f"file://{quote(os.fsencode(paths.temporary / 'mlruns'))}"
        if not self.workspace.has_layers:
            environment |= self._redirection(job, paths)
        if job.devices:
            environment[names.VISIBLE_DEVICES] = ",".join(job.devices)
        elif job.device == "cpu":
            environment[names.VISIBLE_DEVICES] = ""
        if job.device != "cpu":
            # On a device, a second compilation of the same graph would cost each trial more than a window. On a CPU
            # each trial compiles anew, because the cap applies to the compiler's memory, too.
            environment[names.COMPILER_CACHE] = str(self.workspace.compiled)
        return environment

    def _redirection(self, job: TrialJob, paths: TrialPaths) -> dict[str, str]:
        """Variables of a trial with redirected writes."""
        plan = self.workspace.redirection(paths.folder, is_probe=job.mode is Mode.PROBE)
        caches = {name: f"{self.workspace.redirected}/caches/{name.lower()}" for name in names.NATIVE_CACHES}
        if names.COMPILER_CACHE in os.environ:
            caches[names.COMPILER_CACHE] = str(paths.temporary / "inductor")
        # The interpreter writes compiled modules by itself, past all redirection.
        return {**caches, names.REDIRECT: encode(plan), "PYTHONDONTWRITEBYTECODE": "1"}
