"""One server process that trials are forked from, as the tuner sees it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from autotune.protocol.supervision import LayerPlan, ServerSpec, write_message
from autotune.sandbox.first_process import PACKAGE_PARENT
from autotune.sandbox.server_launch import HOME

SERVER = """
import sys
there = frozenset(sys.modules)
sys.path.append(sys.argv[1])
import os
if os.environ.get("AUTOTUNE_REDIRECT"):
    from autotune.sandbox.redirect import install
    install()  # Before anything keeps a function by its name that it replaces.
from autotune.runner.fork_server_loop import main
main(sys.argv[2], int(sys.argv[3]), there)
"""
LAUNCH = (
    "import sys; sys.path.append(sys.argv[1]); from autotune.sandbox.server_launch import main; "
    "main(sys.argv[2], int(sys.argv[3]), sys.argv[4:])"
)
READY_LIMIT_S = 180.0
"""Longest time for the imports: a cold disk, a large framework."""
FORK_LIMIT_S = 20.0
CLOSE_LIMIT_S = 5.0
SERVER_MARK = "AUTOTUNE_SERVER"
"""Variable in the environment of a server and all that is forked from it, by which strays are found."""


class ForkServerError(Exception):
    """No trial can be forked from this server; the text says why."""


class ForkServerGoneError(ForkServerError):
    """The server ended before it forked a trial, for instance with a trial that was killed; a new server may fork."""


class ForkedSupervisor:
    """A supervisor that the server forked: what `subprocess.Popen` is to one that was started."""

    def __init__(self, pidfd: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = _number(pidfd), stdin, stdout
        self._pidfd: int | None = pidfd

    def poll(self) -> int | None:
        """None while it runs; 0 once it is gone."""
        if self._pidfd is not None and select.select([self._pidfd], [], [], 0)[0]:
            os.close(self._pidfd)
            self._pidfd = None
        return None if self._pidfd is not None else 0

    def kill(self) -> None:
        """Kills it, if it is there."""
        if self._pidfd is not None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def _number(pidfd: int) -> int:
    """Process id, as this process's namespace counts, of what a descriptor is of; 0 once that is gone."""
    said = Path("/proc/self/fdinfo", str(pidfd)).read_bytes()
    number = next((int(line.split()[1]) for line in said.splitlines() if line.startswith(b"Pid:")), 0)
    return max(number, 0)


class ForkServer:
    """Starts the server and has it fork supervisors.

    Args:
        python: The script's interpreter.
        environment: Of the server; its trials differ from it only in what their specs say.
        folder: A folder of the server's own, which goes with it.
        mounts: Plan of its copy-on-write layers; None without layers.
        writable: Where Landlock is to let it, and all that it forks, write; None = everywhere.
        imports: Modules that it imports.
        own_modules: Names that the script has modules of its own by.

    Raises:
        ForkServerError: Forking from it would not be sound, or it does not come up.
    """

    def __init__(
        self,
        *,
        python: str,
        environment: Mapping[str, str],
        folder: Path,
        mounts: LayerPlan | None,
        writable: tuple[str, ...] | None = None,
        imports: tuple[str, ...],
        own_modules: tuple[str, ...],
    ) -> None:
        self.folder = folder
        self.environment = dict(environment)
        spec = folder / "server.json"
        write_message(
            spec,
            ServerSpec(folder=str(folder), layers=mounts, writable=writable, imports=imports, own_modules=own_modules),
        )
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._home: int | None = None
        options = ["-X", "utf8"] if sys.flags.utf8_mode else []
        with (folder / "server.log").open("wb") as log, theirs:
            command = [python, *options, "-c", SERVER, PACKAGE_PARENT, str(spec), str(theirs.fileno())]
            if mounts is not None:
                launcher = [sys.executable, "-I", "-S", *options, "-c", LAUNCH, PACKAGE_PARENT]
                command = [*launcher, str(spec), str(theirs.fileno()), *command]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**environment, SERVER_MARK: str(folder)},
                start_new_session=True,
            )
        if mounts is not None:
            self._home = self._received_home()
        self.import_s = self._wait_until_ready()

    @property
    def home(self) -> int | None:
        """Descriptor of the mount namespace of the supervisors of its trials; None where there are no layers."""
        return self._home

    @property
    def pid(self) -> int:
        """Process id of the server: its pages are a trial's imports, and belong to the trial's memory."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def fork(self, spec: Path) -> ForkedSupervisor:
        """Forks a supervisor for the trial of that spec.

        Raises:
            ForkServerError: The server is gone or does not answer.
        """
        try:
            return ask_for_supervisor(self._socket, spec, self._home)
        except (OSError, ForkServerError) as error:
            raise ForkServerGoneError(f"the server of the imports is gone: {error}") from error

    def close(self) -> None:
        """Ends the server; trials that it forked have ended before."""
        self._socket.close()
        if self._home is not None:
            os.close(self._home)
            self._home = None
        try:
            self._process.wait(CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _received_home(self) -> int:
        """The descriptor that the launcher sends first.

        Raises:
            ForkServerError: It sends none.
        """
        reason = "it said nothing"
        if select.select([self._socket], [], [], READY_LIMIT_S)[0]:
            message, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 16, 1)
            if message == HOME:
                return descriptors[0]
            reason = str(json.loads(message)["reason"]) if message else "it ended"
        self._process.kill()
        self.close()
        raise ForkServerError(reason)

    def _wait_until_ready(self) -> float:
        """Seconds that its imports took."""
        try:
            said = answer(self._socket, READY_LIMIT_S)
        except ForkServerError as error:
            self._process.kill()
            self.close()
            raise ForkServerError(f"a process that imports what the script imports is of no use: {error}") from error
        if said["reason"]:
            self.close()
            raise ForkServerError(str(said["reason"]))
        return float(said["import_s"])


def ask_for_supervisor(server: socket.socket, spec: Path, home: int | None) -> ForkedSupervisor:
    """Has the process behind the socket fork a supervisor for the trial of that spec.

    Args:
        server: The socket.
        spec: File of the spec.
        home: Descriptor of the mount namespace in which the supervisor works; None where there are no layers.

    Raises:
        ForkServerError: It does not answer, or has ended.
        OSError: It is gone.
    """
    orders, to_supervisor = os.pipe()
    from_supervisor, ending = os.pipe()
    try:
        socket.send_fds(server, [os.fsencode(spec)], [orders, ending, *([home] if home is not None else [])])
        pidfd = _forked(server)
    except (OSError, ForkServerError):
        os.close(to_supervisor)
        os.close(from_supervisor)
        raise
    finally:
        os.close(orders)
        os.close(ending)
    return ForkedSupervisor(
        pidfd, os.fdopen(to_supervisor, "wb", buffering=0), os.fdopen(from_supervisor, "rb", buffering=0)
    )


def _forked(server: socket.socket) -> int:
    """Descriptor of the process that was forked.

    Raises:
        ForkServerError: None comes.
    """
    if not select.select([server], [], [], FORK_LIMIT_S)[0]:
        raise ForkServerError(f"it said nothing for {FORK_LIMIT_S:.0f} s")
    message, descriptors, _, _ = socket.recv_fds(server, 1 << 16, 1)
    if not message or not descriptors:
        raise ForkServerError("it ended")
    return descriptors[0]


def answer(server: socket.socket, limit_s: float) -> dict[str, Any]:
    """What the process behind the socket says next.

    Raises:
        ForkServerError: It says nothing for so long, or nothing that can be read, or has ended.
    """
    if not select.select([server], [], [], limit_s)[0]:
        raise ForkServerError(f"it said nothing for {limit_s:.0f} s")
    try:
        message = server.recv(1 << 16)
        if message:
            return dict(json.loads(message))
    except (OSError, TypeError, ValueError) as error:
        raise ForkServerError(f"it said nothing that can be read: {error}") from error
    raise ForkServerError("it ended")
