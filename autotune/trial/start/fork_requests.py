"""Forks a supervisor for each request of the tuner; the supervisor forks the trial."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autotune.protocol.codec import decode
from autotune.protocol.environment import REDIRECT
from autotune.protocol.forking import FORKED
from autotune.protocol.supervision import SupervisorSpec
from autotune.sandbox import fork_callbacks, namespaces, redirect, supervisor
from autotune.sandbox.process_tree import send
from autotune.sandbox.trial_launch import Origin, Run

MAX_MESSAGE_BYTES = 1 << 20


def serve(tuner: socket.socket, run: Run | None = None, kept: Sequence[int] = ()) -> SupervisorSpec | None:
    """Serves requests until the tuner is gone. A request is the path of a trial's spec, with descriptors.

    Two descriptors are the supervisor's ends of its pipes to the tuner. With layers, a third descriptor names the mount
    namespace in which supervisors work.

    Args:
        tuner: Socket of the tuner.
        run: Runs a trial in the trial's process; None lets the trial return from `serve`.
        kept: Descriptors to leave open in a trial.

    Returns:
        In a trial, the trial's spec; in this process None, once the tuner is gone.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The tuner watches supervisors by descriptors; no wait is needed.
    while True:
        message, descriptors, _, _ = socket.recv_fds(tuner, MAX_MESSAGE_BYTES, 3)
        if not message:
            return None
        fork_callbacks.mute()
        pid = os.fork()
        if pid == 0:
            origin = Origin(run=run, kept=tuple(kept))
            return _become_supervisor(os.fsdecode(message), descriptors, tuner, origin)
        fork_callbacks.unmute()
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            _name(tuner, pid)
        except OSError:
            send(pid, signal.SIGKILL)
            return None


def stand_down() -> None:
    """Ends the redirection of this process's writes, for work on the system's own folders."""
    if REDIRECT in os.environ:
        redirect.stand_down()


def _name(tuner: socket.socket, pid: int) -> None:
    """Sends the tuner a descriptor of a supervisor."""
    descriptor = os.pidfd_open(pid)
    try:
        socket.send_fds(tuner, [FORKED], [descriptor])
    finally:
        os.close(descriptor)


def _become_supervisor(spec_path: str, descriptors: list[int], tuner: socket.socket, origin: Origin) -> SupervisorSpec:
    """Supervises a forked trial in this child; returns in the trial's process alone, with the trial's spec."""
    spec = None
    try:
        os.setsid()
        stand_down()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for standard, descriptor in enumerate(descriptors[:2]):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        for home in descriptors[2:]:
            origin = origin._replace(rollups=_go_home(home, spec_path))
        tuner.close()
        spec = supervisor.main(spec_path, origin)
    finally:
        if spec is None:
            os._exit(0)
    return spec


def _go_home(home: int, spec_path: str) -> tuple[int, ...]:
    """Leaves the server's layers, because a supervisor works on the system's own folders.

    In a process namespace of the server's, /proc is mounted anew to show the namespace.

    Args:
        home: Descriptor of the system's mount namespace.
        spec_path: A `SupervisorSpec` as JSON.

    Returns:
        Descriptors of the servers' smaps_rollup files, for a trial in a process namespace without the servers.
    """
    namespaces.raise_rights()
    namespaces.join_mounts(home)
    os.close(home)
    rollups = []
    for pid in decode(SupervisorSpec, Path(spec_path).read_text()).servers:
        with suppress(OSError):
            rollups.append(os.open(f"/proc/{pid}/smaps_rollup", os.O_RDONLY))
    if os.getpid() != int(Path("/proc/self").readlink().name):
        namespaces.unshare(namespaces.CLONE_NEWNS)
        namespaces.mount("none", "/", None, namespaces.MS_REC | namespaces.MS_SLAVE)
        namespaces.mount("proc", "/proc", "proc", 0)
    return tuple(rollups)
