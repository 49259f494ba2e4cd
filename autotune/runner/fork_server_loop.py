"""The process that has imported what the script imports, and forks trials from there: its main loop.

Run in the script's own interpreter with a socket to the tuner. It imports, checks that forking is sound, says so, and
then forks one supervisor for every trial; the supervisor forks the trial, which runs the script in place of an exec.
The server never runs anything of the user's, starts no thread, and never touches the device. It lives in a copy-on-
write layer of its own, because an import may write a cache, from its interpreter's start on (`server_launch.py`), and
ends when the tuner does.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autotune.protocol.supervision import ServerSpec, SupervisorSpec, read_message
from autotune.sandbox import landlock, namespaces, supervisor
from autotune.sandbox.process_tree import PR_SET_PDEATHSIG, prctl, send
from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.trial_launch import Origin, Run

ENTRY = "autotune.trial.start.forked_start"
"""The room of the trial has what runs in its process; named, not imported: it imports torch."""
REDIRECTION, REDIRECT = "autotune.sandbox.redirect", "AUTOTUNE_REDIRECT"
"""What redirects a process's writes, named likewise, and the variable of processes that it does so in."""
MAX_MESSAGE_BYTES = 1 << 20


def main(spec_path: str, descriptor: int, there: frozenset[str] = frozenset()) -> None:
    """Prepares the process and serves until the tuner is gone.

    Args:
        spec_path: A `ServerSpec` as JSON; this process has entered the layers already.
        descriptor: The socket to the tuner.
        there: Names of the modules that every interpreter has before it runs anything.
    """
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    tuner = socket.socket(fileno=descriptor)
    # Imports take long, and nobody looks whether the tuner still lives meanwhile.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([tuner], [], [], 0)[0]:
        os._exit(0)  # It was gone before that.
    spec = read_message(ServerSpec, Path(spec_path).read_text())
    try:
        if _prepare(spec, tuner, there):
            run = importlib.import_module(ENTRY).run
            serve(tuner, run)
    finally:
        _stand_down()
        remove_tree(Path(spec.folder))
        os._exit(0)


def _stand_down() -> None:
    """Makes paths mean what they always do, where the server's writes are redirected to its layer."""
    if REDIRECT in os.environ:
        importlib.import_module(REDIRECTION).stand_down()


def _prepare(spec: ServerSpec, tuner: socket.socket, there: frozenset[str]) -> bool:
    """Imports, checks, and says what came of it; whether trials can be forked."""
    began = time.monotonic()
    reason = ""
    try:
        if spec.layers is not None:
            namespaces.keep_rights_in_this_program()
        if spec.writable is not None:
            landlock.restrict(spec.writable, is_forked_from=True)
        os.chdir("/")
        entry = importlib.import_module(ENTRY)
        entry.preload(spec.imports)
        reason = entry.why_not(frozenset({0, 1, 2, tuner.fileno()}), frozenset(spec.own_modules) - there)
    except BaseException as error:
        reason = f"the imports failed: {error!r:.300}"
    # From here on the socket tells, and the server's folder is removed at its end.
    prctl(PR_SET_PDEATHSIG, 0)
    said = {"reason": reason, "import_s": time.monotonic() - began}
    tuner.sendall(json.dumps(said).encode())
    return not reason


def serve(tuner: socket.socket, run: Run | None = None, kept: Sequence[int] = ()) -> SupervisorSpec | None:
    """Forks a supervisor for every request, which is the path of a spec with its ends of two pipes.

    Where there are layers, a third descriptor comes with it: of the mount namespace in which supervisors work.

    Args:
        tuner: Who asks.
        run: What runs a trial in its process; None lets it go on where this process is.
        kept: Descriptors that stay open in a trial.

    Returns:
        None when the tuner is gone; in a trial that goes on from here, its spec.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Supervisors need no burial: the tuner watches them itself.
    while True:
        message, descriptors, _, _ = socket.recv_fds(tuner, MAX_MESSAGE_BYTES, 3)
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            return _become_supervisor(message.decode(), descriptors, tuner, Origin(run=run, kept=tuple(kept)))
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            _tell(tuner, pid)
        except OSError:
            send(pid, signal.SIGKILL)
            return None


def _tell(tuner: socket.socket, pid: int) -> None:
    """Names a supervisor to the tuner: by a descriptor, since in a process namespace its number is another."""
    descriptor = os.pidfd_open(pid)
    try:
        socket.send_fds(tuner, [json.dumps({"pid": pid}).encode()], [descriptor])
    finally:
        os.close(descriptor)


def _become_supervisor(spec_path: str, descriptors: list[int], tuner: socket.socket, origin: Origin) -> SupervisorSpec:
    """In the child: a supervisor like any other, but that its trial is forked; returns in that alone, with its spec."""
    spec = None
    try:
        os.setsid()
        _stand_down()
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
    """Leaves the layers of the process that this one was forked from: a supervisor works on the system's own folders.

    Where that process has a process namespace, /proc is made to show it.

    Args:
        home: Descriptor of the mount namespace of the system.
        spec_path: Of the trial, with `servers`: the process ids that the system knows what it is forked from by.

    Returns:
        Descriptors of what the kernel says of their memory: a trial with a process namespace does not see them.
    """
    namespaces.raise_rights()
    namespaces.join_mounts(home)
    os.close(home)
    rollups = []
    for pid in read_message(SupervisorSpec, Path(spec_path).read_text()).servers:
        with suppress(OSError):
            rollups.append(os.open(f"/proc/{pid}/smaps_rollup", os.O_RDONLY))
    if os.getpid() != int(Path("/proc/self").readlink().name):
        namespaces.unshare(namespaces.CLONE_NEWNS)
        namespaces.mount("none", "/", None, namespaces.MS_REC | namespaces.MS_SLAVE)
        namespaces.mount("proc", "/proc", "proc", 0)
    return tuple(rollups)
