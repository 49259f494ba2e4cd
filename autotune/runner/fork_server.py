"""A process that trials are forked from, from the tuner's side."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

from autotune.protocol.codec import decode, encode
from autotune.protocol.entry_points import FORK_SERVER, SERVER_LAUNCH
from autotune.protocol.environment import SERVER
from autotune.protocol.forking import (
    FURTHER_IMPORTS,
    GO_ON,
    HOME,
    ForkServerHello,
    ForkServerImports,
    ForkServerSpec,
)
from autotune.sandbox.descriptors import readable
from autotune.sandbox.own_files import put
from autotune.sandbox.process_tree import warnings_held_back

READY_LIMIT_S = 180.0
"""Longest time for the imports: a cold disk, a large framework."""
FORK_LIMIT_S = 20.0
CLOSE_LIMIT_S = 5.0
MAX_MESSAGE_BYTES = 1 << 16
Message = TypeVar("Message")


class ForkServerError(Exception):
    """No trial can be forked from a server; the text says why."""


class ForkServerGoneError(ForkServerError):
    """The server ended before the fork, for instance with a killed trial; a new server may fork."""


class UnsoundForkError(ForkServerError):
    """The imports have left a process that no trial can be forked from, and would do so in a new server."""


class ForkedSupervisor:
    """A supervisor forked by a server, with the interface of `subprocess.Popen`."""

    def __init__(self, pidfd: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = _number(pidfd), stdin, stdout
        self._pidfd: int | None = pidfd

    def poll(self) -> int | None:
        """None while the supervisor runs; 0 afterwards."""
        if self._pidfd is not None and readable(self._pidfd, limit_s=0):
            os.close(self._pidfd)
            self._pidfd = None
        return None if self._pidfd is not None else 0

    def kill(self) -> None:
        """Kills the supervisor if it still runs."""
        if self._pidfd is not None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def _number(pidfd: int) -> int:
    """Process id behind a descriptor, in this process's namespace; 0 after the end of the process."""
    lines = Path("/proc/self/fdinfo", str(pidfd)).read_bytes().splitlines()
    number = next((int(line.split()[1]) for line in lines if line.startswith(b"Pid:")), 0)
    return max(number, 0)


class ForkServer:
    """Starts a server, which imports torch by itself, and asks the server to fork supervisors after `go_on`.

    Args:
        python: The script's interpreter.
        environment: Variables of the server; the specs of trials name the differences.
        spec: Surroundings.

    Raises:
        ForkServerError: The server does not start.
    """

    def __init__(self, *, python: str, environment: Mapping[str, str], spec: ForkServerSpec) -> None:
        self.folder, self.spec = Path(spec.folder), spec
        self.import_s = 0.0
        """Seconds that the server's imports took."""
        self.environment = dict(environment)
        spec_path = self.folder / "server.json"
        put(spec_path, encode(spec), below=self.folder.parent)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._home: int | None = None
        words = (str(spec_path), str(theirs.fileno()))
        command = FORK_SERVER.command_by(python, *words)
        if spec.layers is not None:
            command = SERVER_LAUNCH.command(*words, *command)
        with (self.folder / "server.log").open("xb") as log, theirs, warnings_held_back():
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**environment, SERVER: spec.folder},
                start_new_session=True,
            )
        if spec.layers is not None:
            self._home = self._received_home()

    def go_on(self, imports: tuple[str, ...]) -> None:
        """Lets the server import further modules, and waits until supervisors can be forked.

        Args:
            imports: Modules of the script beside torch.

        Raises:
            UnsoundForkError: The imports leave a process that cannot be forked soundly.
            ForkServerError: torch could not be imported, or the server is gone.
        """
        try:
            put(self.folder / FURTHER_IMPORTS, encode(ForkServerImports(imports)), below=self.folder.parent)
        except OSError as error:
            self.give_up()
            raise ForkServerError(f"the names of the imports cannot be written: {error}") from error
        with suppress(OSError):  # A server that has ended has said why.
            self._socket.sendall(GO_ON)
        self.import_s = self._wait_until_ready()

    def give_up(self) -> None:
        """Ends a server that has forked nothing, at once."""
        self._process.kill()
        self.close()

    @property
    def home(self) -> int | None:
        """Descriptor of the mount namespace for the supervisors of trials; None without layers."""
        return self._home

    @property
    def pid(self) -> int:
        """Process id of the server; the server's pages hold a trial's imports, and count as the trial's memory."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the server still runs."""
        return self._process.poll() is None

    def fork(self, spec: Path) -> ForkedSupervisor:
        """Forks a supervisor for the trial with this spec.

        Raises:
            ForkServerError: The server is gone or does not answer.
        """
        try:
            return ask_for_supervisor(self._socket, spec, self._home)
        except (OSError, ForkServerError) as error:
            raise ForkServerGoneError(f"the server of the imports is gone: {error}") from error

    def close(self) -> None:
        """Ends the server, after the end of all trials forked from the server."""
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
        """The descriptor in the launcher's first message.

        Raises:
            ForkServerError: The message brings no descriptor.
        """
        reason = "it said nothing"
        if readable(self._socket.fileno(), limit_s=READY_LIMIT_S):
            message, descriptors, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, 1)
            if message == HOME:
                return descriptors[0]
            reason = decode(ForkServerHello, message).reason if message else "it ended"
        self._process.kill()
        self.close()
        raise ForkServerError(reason)

    def _wait_until_ready(self) -> float:
        """Seconds that the server's imports took."""
        try:
            hello = receive(ForkServerHello, self._socket, READY_LIMIT_S)
        except ForkServerError as error:
            self._process.kill()
            self.close()
            raise ForkServerError(f"a process that imports what the script imports is of no use: {error}") from error
        if hello.reason:
            self.close()
            raise UnsoundForkError(hello.reason) if hello.has_imported else ForkServerError(hello.reason)
        return hello.import_s


def ask_for_supervisor(server: socket.socket, spec: Path, home: int | None) -> ForkedSupervisor:
    """Asks the process behind a socket to fork a supervisor.

    Args:
        server: The socket.
        spec: Path of the spec of the supervisor's trial.
        home: Descriptor of the mount namespace for the supervisor; None without layers.

    Raises:
        ForkServerError: The process does not answer, or has ended.
        OSError: The process is gone.
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
    """Descriptor of the forked process.

    Raises:
        ForkServerError: No descriptor comes.
    """
    _wait_for_message(server, FORK_LIMIT_S)
    message, descriptors, _, _ = socket.recv_fds(server, MAX_MESSAGE_BYTES, 1)
    if not message or not descriptors:
        raise ForkServerError("it ended")
    return descriptors[0]


def receive(kind: type[Message], server: socket.socket, limit_s: float) -> Message:
    """The next message of the process behind a socket.

    Args:
        kind: Type of the message.
        server: The socket.
        limit_s: Longest wait, in seconds.

    Raises:
        ForkServerError: No message of this type comes in time, or the process has ended.
    """
    _wait_for_message(server, limit_s)
    try:
        message = _received(server)
        if message:
            return decode(kind, message)
    except (OSError, ValueError) as error:
        raise ForkServerError(f"it said nothing that can be read: {error}") from error
    raise ForkServerError("it ended")


def _received(server: socket.socket) -> bytes:
    """The next message, or nothing after the end; a process that ended without reading ours may have said why."""
    try:
        return server.recv(MAX_MESSAGE_BYTES)
    except ConnectionResetError:
        return server.recv(MAX_MESSAGE_BYTES)


def _wait_for_message(server: socket.socket, limit_s: float) -> None:
    if not readable(server.fileno(), limit_s=limit_s):
        raise ForkServerError(f"it said nothing for {limit_s:.0f} s")
