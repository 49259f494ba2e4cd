"""Forks trials from a process with the script's imports, or from a process that has run the script's beginning.

Trials without a sound fork get a cold start, with the reason.
"""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Self

from autotune.errors import HostError
from autotune.model.facts import ScriptFacts
from autotune.model.result import StartKind
from autotune.protocol.codec import encode
from autotune.protocol.environment import BY_CALL, SERVER_PIDS
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import SupervisorSpec
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_server import (
    ForkedSupervisor,
    ForkServer,
    ForkServerError,
    ForkServerGoneError,
    UnsoundForkError,
)
from autotune.runner.handle import Handle
from autotune.runner.prelude_server import Preparation, PreparingRun, Trust, difference, why_unprepared
from autotune.runner.python_command import plain_command, read_python
from autotune.runner.runner import Start
from autotune.runner.server_start import give_up, is_of_use, start_server
from autotune.sandbox.own_files import put

MAX_SERVERS = 3
"""Each server holds the script's imports in memory. Servers differ in variables that imports read."""
MAX_PREPARATIONS = 2
"""Each prelude holds the script's memory at the place where settings begin to matter."""
LEAST_PREPARATION_S = 0.3
"""Every trial repeats a shorter beginning."""
PYTHON_OPTIONS = frozenset({"-u"})
"""Options of the interpreter that a fork can honour: every trial is unbuffered."""

Key = tuple[tuple[str, str], ...]
"""Variables that imports read."""


class ForkRunner:
    """Starts trials from fork servers and preludes; `close` ends both.

    Args:
        cold: Starts the other trials, and prepares the surroundings of all runs.
        facts: Findings of the probe: imported modules, and obstacles to forks.
        least_preparation_s: Shortest beginning of the script to run once for all trials; infinite = never.
        begun: A server started beside the probe, for the first trial; None = none.
    """

    def __init__(
        self,
        cold: ColdRunner,
        facts: ScriptFacts,
        *,
        least_preparation_s: float = LEAST_PREPARATION_S,
        begun: ForkServer | None = None,
    ) -> None:
        self._cold = cold
        self._facts = facts
        self._begun = begun
        self._servers: OrderedDict[Key, ForkServer] = OrderedDict()
        self._preparations: OrderedDict[tuple[Key, tuple[str, ...]], Preparation] = OrderedDict()
        """Preludes by server and command."""
        self._refusal = ""
        self._least_preparation_s = least_preparation_s
        self._unprepared = "" if math.isfinite(least_preparation_s) else "nothing is prepared"
        self._trust = Trust(facts)

    def __enter__(self) -> Self:
        """This runner."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Ends the servers."""
        self.close()

    def start(self, job: TrialJob) -> Handle | PreparingRun:
        """Starts a run and returns the run's handle."""
        reason = self._refusal or why_cold(job, self._facts)
        if reason:
            self._give_up_begun()
        else:
            try:
                return self._start_anew(job)
            except ForkServerError as error:
                self._refusal = reason = str(error)
        return self._cold.start(job, start_reason=reason)

    def close(self) -> None:
        """Ends all servers, and removes the servers' files."""
        self._give_up_begun()
        for key in list(self._servers):
            self._end(key)

    def _start_anew(self, job: TrialJob) -> Handle | PreparingRun:
        """Starts a trial, with new servers if the old server has ended.

        A server ends with a trial whose supervisor was killed, and may seem alive for a moment longer.

        Raises:
            ForkServerError: The trial cannot be forked.
        """
        try:
            return self._start(job)
        except ForkServerGoneError:
            self.close()
            return self._start(job)

    def _start(self, job: TrialJob) -> Handle | PreparingRun:
        """Starts a trial in the fastest sound way.

        Raises:
            ForkServerError: The trial cannot be forked.
        """
        began = time.monotonic()
        key, is_new = self._serve(job)
        server_s = time.monotonic() - began if is_new else 0.0
        reason = (
            self._unprepared
            or why_unprepared(job, self._facts)
            or self._trust.why_not(job.request.settings)
            or self._why_useless(key)
        )
        if reason:
            return self._fork(key, job, server_s, reason)
        preparation = self._preparations.get((key, job.command))
        if preparation is not None and preparation.is_alive():
            self._preparations.move_to_end((key, job.command))
            return self._go_on(key, job, server_s)
        try:
            preparation = self._prepare(key, job)
        except (OSError, HostError) as error:
            self._unprepared = f"its beginning cannot be prepared: {error.__cause__ or error}"
            return self._fork(key, job, server_s, self._unprepared)
        return PreparingRun(preparation, lambda: self._decided(key, job, began))

    def _why_useless(self, key: Key) -> str:
        """Why a prelude would save too little, by the probe's times; empty when a prelude may save enough."""
        began_s = self._facts.first_step_s - self._servers[key].import_s
        if began_s >= self._least_preparation_s or self._least_preparation_s == 0:
            return ""
        return f"in its probe its first step came after {self._facts.first_step_s:.1f} s, imports included"

    def _prepare(self, key: Key, job: TrialJob) -> Preparation:
        """Starts a prelude, in place of the least recently used prelude if necessary."""
        self._forget(key, job.command)
        while len(self._preparations) >= MAX_PREPARATIONS:
            self._forget(*next(iter(self._preparations)))
        preparation = Preparation(self._cold, self._servers[key], job)
        self._preparations[key, job.command] = preparation
        return preparation

    def _decided(self, key: Key, job: TrialJob, began: float) -> Handle:
        """Starts the trial that waited for a preparation, once the outcome of the preparation is known."""
        preparation, server_s = self._preparations[key, job.command], time.monotonic() - began
        reason = preparation.reason
        if not reason and preparation.prepared_s < self._least_preparation_s:
            reason = f"its own beginning, up to {preparation.place}, takes {preparation.prepared_s:.2f} s"
        try:
            if not reason:
                return self._go_on(key, job, server_s)
            self._unprepared = reason
            self._forget(key, job.command)
            return self._fork(key, job, server_s, reason)
        except ForkServerError as error:
            self._refusal = str(error)
            return self._cold.start(job, start_reason=self._refusal)

    def _go_on(self, key: Key, job: TrialJob, server_s: float) -> Handle:
        """Starts a trial from the prelude."""
        preparation = self._preparations[key, job.command]
        reason = preparation.why_not(job)
        if reason:
            return self._fork(key, job, server_s, reason)
        start = Start(
            kind=StartKind.PREPARED,
            reason=f"its settings matter from {preparation.place}, on",
            server_pids=(preparation.pid, self._servers[key].pid),
            server_s=server_s,
            saved_s=self._servers[key].import_s + preparation.prepared_s,
            stray_folder=self._servers[key].folder,
            judged=lambda result: self._trust.judged(job, result),
        )
        try:
            return self._cold.start_with(job, preparation.launch, start)
        except ForkServerError as error:
            self._unprepared = f"the process that had run its beginning is gone: {error}"
            self._forget(key, job.command)
            return self._fork(key, job, server_s, self._unprepared)

    def _fork(self, key: Key, job: TrialJob, server_s: float, reason: str) -> Handle:
        """Starts a trial from the fork server.

        Raises:
            ForkServerError: The server is gone.
        """
        server = self._servers[key]

        def launch(spec: SupervisorSpec, environment: dict[str, str], paths: TrialPaths) -> ForkedSupervisor:
            environment[SERVER_PIDS] = str(server.pid)
            spec = spec._replace(
                command=plain_command(job.command),
                started_as=job.command,
                servers=(server.pid,),
                environment=difference(server.environment, environment),
            )
            put(paths.supervisor, encode(spec), below=self._cold.workspace.folder)
            return server.fork(paths.supervisor)

        start = Start(
            kind=StartKind.FORKED,
            reason=reason,
            server_pids=(server.pid,),
            server_s=server_s,
            saved_s=server.import_s,
            stray_folder=server.folder,
            judged=lambda result: self._trust.judged(job, result),
        )
        return self._cold.start_with(job, launch, start)

    def _serve(self, job: TrialJob) -> tuple[Key, bool]:
        """The key of the server for a job, and whether the server is new; the least recently used server gives way.

        Raises:
            ForkServerError: Forks of the server would not be sound.
        """
        at_import = (pair for pair in job.environment if pair[0] not in BY_CALL)
        key = (*at_import, ("devices", ",".join(job.devices)))
        server = self._servers.get(key)
        if server is not None and server.is_alive():
            self._servers.move_to_end(key)
            return key, False
        if server is not None:
            self._end(key)
        while len(self._servers) >= MAX_SERVERS:
            self._end(next(iter(self._servers)))
        self._servers[key] = self._start_server(job)
        return key, True

    def _start_server(self, job: TrialJob) -> ForkServer:
        """A server with the script's imports: the server started beside the probe, if of use, otherwise a new one.

        Raises:
            ForkServerError: Forks of the server would not be sound.
        """
        if self._begun is not None and is_of_use(self._begun, self._cold, job, self._facts.imports):
            server, self._begun = self._begun, None
            try:
                return self._ready(server)
            except UnsoundForkError:
                raise
            except ForkServerError:
                pass  # A new server has the probe's layer, and may fare better.
        self._give_up_begun()
        return self._ready(start_server(self._cold, job))

    def _ready(self, server: ForkServer) -> ForkServer:
        """The server with the script's imports; removes the server's folder where the imports fail.

        Raises:
            ForkServerError: Forks of the server would not be sound.
        """
        try:
            server.go_on(self._facts.imports)
        except ForkServerError:
            self._cold.workspace.remove_trial(server.folder)
            raise
        return server

    def _give_up_begun(self) -> None:
        server, self._begun = self._begun, None
        give_up(server, self._cold)

    def _end(self, key: Key) -> None:
        for of, command in list(self._preparations):
            if of == key:
                self._forget(of, command)
        server = self._servers.pop(key)
        server.close()
        self._cold.workspace.remove_trial(server.folder)

    def _forget(self, key: Key, command: tuple[str, ...]) -> None:
        preparation = self._preparations.pop((key, command), None)
        if preparation is not None:
            preparation.close()


def why_cold(job: TrialJob, facts: ScriptFacts) -> str:
    """Why a job cannot be forked, as known before any attempt; empty when the job can be."""
    if job.mode is not Mode.TRIAL:
        return "a probe sees the script as it is"
    if reason := why_never_forked(job):
        return reason
    if facts.keras is not None:
        return f"{facts.keras.engine} starts threads at its import, which no fork takes along"
    if facts.early_environment:
        return f"the script, or an import of it, sets {facts.early_environment[0]} before it imports torch"
    if facts.imported_after_freeze:
        return f"the script freezes its heap before it imports {facts.imported_after_freeze}"
    return ""


def why_never_forked(job: TrialJob) -> str:
    """Why a job cannot be forked, as known before the probe; empty when the job may be forked."""
    python = read_python(job.command)
    if job.world_size > 1:
        return "several processes train together"
    if python is None:
        return f"{Path(job.command[0]).name} is not a Python interpreter"
    unknown = [option for option in python.options if option not in PYTHON_OPTIONS]
    if unknown:
        return f"the interpreter is started with {unknown[0]}"
    if not python.words or (python.words[0] == "-m" and len(python.words) < 2):
        return "the command names no script"
    if not hasattr(os, "pidfd_open"):
        return "this system has no descriptors of processes"
    return ""
