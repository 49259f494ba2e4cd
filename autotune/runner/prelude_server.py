"""Runs the script's beginning once, forks trials from there, and decides how far such trials are trusted."""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from autotune.model.facts import ScriptFacts
from autotune.model.gauges import Gauges
from autotune.model.outcome import Outcome
from autotune.model.result import ProbeResult, StartKind, TrialResult
from autotune.protocol.codec import encode
from autotune.protocol.environment import (
    BY_CALL,
    FORKABLE,
    PRELUDE_ADDRESS,
    REDIRECT,
    SERVER_PIDS,
    THREADS_BY_CALL,
    TMPDIR,
)
from autotune.protocol.forking import PreludeHello
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import SupervisorSpec
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_server import ForkedSupervisor, ForkServer, ForkServerError, ask_for_supervisor, receive
from autotune.runner.handle import POLL_S, Handle
from autotune.runner.python_command import plain_command
from autotune.runner.runner import Start
from autotune.sandbox.descriptors import readable
from autotune.sandbox.own_files import put
from autotune.sandbox.process_tree import parent_of
from autotune.sandbox.trial_processes import Tree
from autotune.settings import Settings

HELLO_LIMIT_S = 5.0
"""Longest time from the prelude's call to the hello."""
LOSS_TOLERANCE = 1e-4
"""Largest relative difference of two first losses from the same random numbers, with the device's rounding."""


class Preparation:
    """A run of the script that stops where settings begin to matter, for forks of trials.

    Args:
        cold: Prepares the surroundings of runs.
        server: Fork server with the script's imports.
        job: Job of the first trial; the run has the script's own settings.

    Raises:
        ForkServerError: The server is gone.
        OSError: The socket for the prelude's call cannot be made.
        HostError: The socket cannot be bound, or there is no room for the prelude's folder.
    """

    def __init__(self, cold: ColdRunner, server: ForkServer, job: TrialJob) -> None:
        self.reason = ""
        """Why no trial can be forked, once decided; empty when trials can be."""
        self.place = ""
        """First place in the script where settings matter."""
        self.pid = 0
        self.prepared_s = 0.0
        """Seconds of the script up to the place, without imports."""
        self._asks_for_threads = False
        self._workspace, self._server = cold.workspace, server
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._is_decided = self._is_cancelled = False
        self._result: TrialResult | None = None
        environment = tuple(pair for pair in job.environment if pair[0] not in BY_CALL)
        request = replace(job.request, settings=job.script_settings)
        job = replace(job, request=request, environment=environment)
        start = Start(kind=StartKind.FORKED, server_pids=(server.pid,), stray_folder=server.folder)
        self._command = job.command
        try:
            self.handle = cold.start_with(job, self._launch_prelude, start)
        except BaseException:
            self._listener.close()
            raise

    def poll(self) -> bool:
        """Checks once for the prelude's call or end; True once the outcome is known. Waits for a hello under way."""
        if self._is_decided:
            return True
        if not self._is_cancelled and readable(self._listener.fileno(), limit_s=0):
            self._hear()
        elif self.handle.poll():
            self.reason = self.reason or "the script ended before its settings mattered"
            self._is_decided = True
        return self._is_decided

    def wait_a_little(self) -> None:
        """Waits for the prelude's call, at most until the next look is due."""
        readable(self._listener.fileno(), limit_s=POLL_S)

    def cancel(self) -> None:
        """Ends the prelude now."""
        self._is_cancelled = True
        self.handle.cancel()

    def is_alive(self) -> bool:
        """Whether trials can be forked now or later."""
        return not self.reason and not self._is_cancelled and self._supervisor.poll() is None

    def why_not(self, job: TrialJob) -> str:
        """Why a trial cannot be forked from the prelude; empty when the trial can be."""
        if self._asks_for_threads and any(name in THREADS_BY_CALL for name, _ in job.environment):
            return "its beginning asks for the number of threads, which these settings change"
        return (
            "" if job.command == self._command else "its settings are arguments, which the script reads before all else"
        )

    def launch(self, spec: SupervisorSpec, environment: dict[str, str], paths: TrialPaths) -> ForkedSupervisor:
        """Starts the supervisor of a trial, for `ColdRunner.start_with`.

        Raises:
            ForkServerError: The prelude is gone.
        """
        assert self._connection is not None
        if self._workspace.has_layers:
            environment[TMPDIR] = self._environment[TMPDIR]  # The trial has a layer over the prelude's folder.
        else:
            # The trial keeps its own TMPDIR, because loader workers hand over batches by sockets, past redirection.
            plan = self._workspace.redirection(paths.folder, is_probe=False, over=self._paths.folder)
            environment[REDIRECT] = encode(plan)
        environment[SERVER_PIDS] = f"{self.pid} {self._server.pid}"
        spec = spec._replace(
            layers=self._workspace.mounts(paths.folder, is_probe=False, over=self._paths.folder),
            earlier_log=str(self._paths.log),
            servers=(self.pid, self._server.pid),
            environment=difference(self._environment, environment),
        )
        try:
            put(paths.supervisor, encode(spec), below=self._workspace.folder)
            put(self._paths.latest, str(paths.folder), below=self._workspace.folder)
        except OSError as error:
            raise ForkServerError(str(error)) from error
        try:
            return ask_for_supervisor(self._connection, paths.supervisor, self._server.home)
        except OSError as error:
            raise ForkServerError(str(error)) from error

    def close(self) -> None:
        """Ends the prelude, and removes the prelude's files."""
        self._listener.close()
        if self._connection is not None:
            self._connection.close()
        self.handle.cancel()
        self.result()

    def result(self) -> TrialResult:
        """Waits for the end of the prelude; the result."""
        if self._result is None:
            self._result = self.handle.result()
        return self._result

    def _launch_prelude(self, spec: SupervisorSpec, environment: dict[str, str], paths: TrialPaths) -> ForkedSupervisor:
        address = self._workspace.short(paths.folder).prelude_socket
        self._listener.bind(str(address))
        self._listener.listen(1)
        self._paths = paths
        environment[SERVER_PIDS] = str(self._server.pid)
        environment[PRELUDE_ADDRESS] = str(address)
        self._environment = environment = {**FORKABLE, **environment}
        spec = spec._replace(
            command=plain_command(self._command),
            started_as=self._command,
            writable=self._workspace.confinement(None),
            is_prelude=True,
            servers=(self._server.pid,),
            environment=difference(self._server.environment, environment),
        )
        put(paths.supervisor, encode(spec), below=self._workspace.folder)
        self._supervisor = self._server.fork(paths.supervisor)
        return self._supervisor

    def _stray(self) -> str:
        """Why trials cannot be forked: the script has left a process, which would live beside every trial."""
        own, pid = set(), self.pid
        while pid and pid != self._supervisor.pid:
            own.add(pid)
            pid = parent_of(pid)
        others = [pid for pid in Tree(self._supervisor.pid).pids() if pid not in own and parent_of(pid)]
        return f"its beginning has left a process running, {others[0]}" if others else ""

    def _hear(self) -> None:
        """Receives the hello of a script that has come to the place."""
        self._connection, _ = self._listener.accept()
        self._is_decided = True
        try:
            hello = receive(PreludeHello, self._connection, HELLO_LIMIT_S)
            self.prepared_s, self._asks_for_threads = hello.prepared_s, hello.asks_for_threads
            self.place, self.pid = hello.place, _pid_behind(self._connection)
            self.reason = hello.reason or self._stray()
        except (OSError, ForkServerError) as error:
            # The script runs in that process, and may have written to the descriptor.
            self.reason = f"its beginning was lost: {error}"


def _pid_behind(connection: socket.socket) -> int:
    """Process id of the caller, in this process's namespace."""
    size = struct.calcsize("3i")
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(pid)


class PreparingRun:
    """A run that waits for a preparation; `poll` watches first the preparation, then the trial.

    Args:
        preparation: The preparation.
        go_on: Starts the trial, once the outcome of the preparation is known.
    """

    def __init__(self, preparation: Preparation, go_on: Callable[[], Handle]) -> None:
        self._preparation, self._go_on = preparation, go_on
        self._handle: Handle | None = None

    def poll(self) -> bool:
        """Checks limits and memory once; True when the run is over."""
        if self._handle is not None:
            return self._handle.poll()
        if self._preparation.poll():
            self._handle = self._go_on()
        return False

    def gauges(self) -> Gauges:
        """Readings of the trial's last `poll`; before the trial's start, of the preparation's."""
        return (self._handle or self._preparation.handle).gauges()

    @property
    def serving(self) -> Handle | None:
        """The trial's handle while its process waits for another request; to be asked after `result`."""
        return self._handle.serving if self._handle is not None else None

    def wait(self) -> None:
        """Waits for the end of the run, and enforces the limits."""
        while self._handle is None:
            self._preparation.wait_a_little()
            self.poll()
        self._handle.wait()

    def cancel(self) -> None:
        """Ends the run now; the result is judged as interrupted."""
        if self._handle is None:
            self._preparation.cancel()
            self._handle = self._preparation.handle
        self._handle.cancel()

    def result(self, *, profiles_to: Path | None = None) -> TrialResult:
        """Waits for the trial; the judged result.

        Args:
            profiles_to: Folder for the profiles of a diagnosis; None = leave the profiles.

        Raises:
            OSError: The profiles cannot be written.
        """
        self.wait()
        assert self._handle is not None
        is_cancelled = self._handle is self._preparation.handle
        return self._preparation.result() if is_cancelled else self._handle.result(profiles_to=profiles_to)

    def probe_result(self) -> ProbeResult:
        """Waits for the probe; the result."""
        self.wait()
        assert self._handle is not None
        return self._handle.probe_result()


class Trust:
    """Judges by results whether trials forked from a prelude equal other trials.

    Args:
        facts: Findings of the probe, with the first loss under the script's own settings.
    """

    def __init__(self, facts: ScriptFacts) -> None:
        self._first_loss = facts.first_loss
        self._failed: set[Settings | None] = set()
        self._reason = ""

    def why_not(self, settings: Settings | None) -> str:
        """Why no prelude may serve a trial under these settings; empty when a prelude may."""
        if self._reason:
            return self._reason
        return "a prepared trial failed under these settings" if settings in self._failed else ""

    def judged(self, job: TrialJob, result: TrialResult) -> None:
        """Learns from a result.

        Settings with a failed prepared trial get another kind of start next. If the next trial does not fail, the
        prelude was at fault. An interrupted trial counts as failed, because the state of the script may have ended the
        supervisor. A first loss unlike the probe's under the same settings shows other random numbers.
        """
        if result.start is not StartKind.PREPARED:
            has_failed = result.outcome.is_failed or not result.outcome.is_finished
            if job.request.settings in self._failed and not has_failed:
                self._reason = "a prepared trial failed where another did not"
            return
        if result.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.INTERRUPTED):
            self._failed.add(job.request.settings)
        losses = result.ranks[0].first_losses if result.ranks else ()
        if job.request.settings != job.script_settings or not losses or self._first_loss is None:
            return
        if not math.isclose(losses[0], self._first_loss, rel_tol=LOSS_TOLERANCE, abs_tol=LOSS_TOLERANCE):
            self._reason = f"the first loss of a prepared trial was {losses[0]:g}, and {self._first_loss:g} before"


def why_unprepared(job: TrialJob, facts: ScriptFacts) -> str:
    """Why no prelude can serve a job, as known before any attempt; empty when a prelude can."""
    if facts.world_size > max(1, job.world_size):
        return f"the script starts its {facts.world_size} processes by itself, and each begins anew"
    assert job.request.settings is not None and job.script_settings is not None
    names = {name.removeprefix("knobs.") for name in job.request.settings.differences(job.script_settings)}
    given = sorted(names & set(job.mapped))
    return f"{given[0]} is an argument, which the script reads before all else" if given else ""


def difference(server: Mapping[str, str], trial: Mapping[str, str]) -> dict[str, str | None]:
    """Variables for a forked trial to change; None removes a variable."""
    names = sorted({*server, *trial})
    return {name: trial.get(name) for name in names if server.get(name) != trial.get(name)}
