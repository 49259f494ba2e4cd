"""Trials forked from a process that has imported what the script imports; cold starts where that is not sound."""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from autotune.model.facts import ScriptFacts
from autotune.model.job import Mode, TrialJob, TrialPaths
from autotune.runner.cold import ColdRunner
from autotune.runner.forkserver import ForkedWarden, ForkServer, ForkServerError
from autotune.runner.handle import Handle, Start

MAX_SERVERS = 3
"""Each holds what the script imports in memory. Variables that are read at import distinguish them."""
BY_CALL = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that are read at import and have a call of the library's own to the same effect, so that no server of their
own is needed: `autotune.trial.forked` makes it."""
PYTHON_OPTIONS = frozenset({"-u"})
"""Options of the interpreter that a fork can honour: every trial is unbuffered."""
PER_TRIAL = ("AUTOTUNE_TRIAL", "AUTOTUNE_STARTED_AT", "AUTOTUNE_SEED", "TMPDIR", "PYTHONPATH")
"""Variables in which a trial differs from its server."""


class ForkRunner:
    """Starts every trial from a server of its imports; `close` ends the servers.

    Args:
        cold: Starts what cannot be forked, and knows how a trial is surrounded.
        facts: What the probe learned: which modules were imported, and whether a fork can be what a start is.
    """

    def __init__(self, cold: ColdRunner, facts: ScriptFacts) -> None:
        self._cold = cold
        self._facts = facts
        self._servers: OrderedDict[tuple[tuple[str, str], ...], ForkServer] = OrderedDict()
        self._refusal = "" if cold.workspace.has_layers else "this system permits no overlay mounts"

    def __enter__(self) -> Self:
        """The runner itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Ends the servers."""
        self.close()

    def start(self, job: TrialJob) -> Handle:
        """Starts one run and gives back its handle, as `ColdRunner.start` does."""
        reason = self._refusal or why_cold(job, self._facts)
        if not reason:
            try:
                return self._fork(job)
            except ForkServerError as error:
                self._refusal = reason = str(error)
        return self._cold.start(job, start_reason=reason)

    def close(self) -> None:
        """Ends all servers, and removes what they wrote."""
        for server in self._servers.values():
            self._end(server)
        self._servers.clear()

    def _fork(self, job: TrialJob) -> Handle:
        began = time.monotonic()
        server, is_new = self._server(job)
        server_s = time.monotonic() - began if is_new else 0.0

        def launch(spec: dict[str, object], environment: dict[str, str], folder: Path) -> ForkedWarden:
            spec["command"], spec["started_as"] = plain_command(job.command), list(job.command)
            environment["AUTOTUNE_SERVER_PID"] = str(server.pid)
            spec["environment"] = _difference(server.environment, environment)
            path = folder / "warden.json"
            path.write_text(json.dumps(spec))
            return server.fork(path)

        start = Start(kind="forked", server_pid=server.pid, server_s=server_s, stray_folder=server.folder)
        return self._cold.start_with(job, launch, start)

    def _server(self, job: TrialJob) -> tuple[ForkServer, bool]:
        """The server whose imports saw the variables of this job, and whether it is new; the least used gives way.

        Raises:
            ForkServerError: Forking from it would not be sound.
        """
        at_import = (pair for pair in job.environment if pair[0] not in BY_CALL)
        key = (*at_import, ("devices", ",".join(job.devices)))
        server = self._servers.pop(key, None)
        is_new = server is None or not server.is_alive()
        if server is None or is_new:
            if server is not None:
                self._end(server)
            while len(self._servers) >= MAX_SERVERS:
                self._end(self._servers.popitem(last=False)[1])
            server = self._start_server(job)
        self._servers[key] = server
        return server, is_new

    def _start_server(self, job: TrialJob) -> ForkServer:
        workspace = self._cold.workspace
        folder = workspace.new_trial()
        environment = self._cold.environment(job, TrialPaths(folder))
        for name in (*PER_TRIAL, *BY_CALL):
            environment.pop(name, None)
            if name in os.environ:
                environment[name] = os.environ[name]
        environment["TMPDIR"] = str(TrialPaths(folder).temporary)
        # Otherwise the first question for a device asks the driver, after which no fork can use it.
        environment.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        try:
            return ForkServer(
                python=job.command[0],
                environment=environment,
                folder=folder,
                mounts=workspace.mounts(folder, is_probe=False),
                imports=self._facts.imports,
                own_modules=own_modules(job),
            )
        except OSError as error:
            workspace.remove_trial(folder)
            raise ForkServerError(f"no server of the imports can be started: {error}") from error
        except ForkServerError:
            workspace.remove_trial(folder)
            raise

    def _end(self, server: ForkServer) -> None:
        server.close()
        self._cold.workspace.remove_trial(server.folder)


@dataclass(frozen=True, slots=True)
class _Python:
    """How a command starts Python."""

    options: tuple[str, ...]
    words: tuple[str, ...]


def why_cold(job: TrialJob, facts: ScriptFacts) -> str:
    """Why a job cannot be forked, known before anything is tried; empty when it can."""
    python = _read_python(job.command)
    if job.mode is not Mode.TRIAL:
        return "a probe sees the script as it is"
    if job.world_size > 1:
        return "several processes train together"
    if python is None:
        return f"{Path(job.command[0]).name} is not a Python interpreter"
    unknown = [option for option in python.options if option not in PYTHON_OPTIONS]
    if unknown:
        return f"the interpreter is started with {unknown[0]}"
    if not python.words or (python.words[0] == "-m" and len(python.words) < 2):
        return "the command names no script"
    if facts.early_environment:
        return f"the script sets {facts.early_environment[0]} before it imports torch"
    if not hasattr(os, "pidfd_open"):
        return "this system has no descriptors of processes"
    return ""


def plain_command(command: tuple[str, ...]) -> list[str]:
    """The command without options of the interpreter."""
    python = _read_python(command)
    assert python is not None
    return [command[0], *python.words]


def own_modules(job: TrialJob) -> tuple[str, ...]:
    """Names of the modules and packages in the folder from which the job's script imports before all others."""
    python = _read_python(job.command)
    assert python is not None
    folder = Path(job.cwd) if python.words[0] == "-m" else Path(job.cwd, python.words[0]).resolve().parent
    files = [path.name.partition(".")[0] for path in folder.glob("*.py")]
    return tuple(sorted({*files, *(path.parent.name for path in folder.glob("*/__init__.py"))}))


def _read_python(command: tuple[str, ...]) -> _Python | None:
    if not Path(command[0]).name.startswith("python"):
        return None
    index = 1
    while index < len(command) and command[index].startswith("-") and command[index] != "-m":
        index += 1
    return _Python(command[1:index], command[index:])


def _difference(server: dict[str, str], trial: dict[str, str]) -> dict[str, str | None]:
    """Variables that a trial must change when it comes from that server; None = it has none of that name."""
    names = sorted({*server, *trial})
    return {name: trial.get(name) for name in names if server.get(name) != trial.get(name)}
