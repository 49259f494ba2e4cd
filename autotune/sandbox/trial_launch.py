"""Start of a trial's process: terminal, namespaces, layers, Landlock, then the command. Standard library only.

The supervisor loads this module.
"""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from autotune.protocol.environment import SERVER_ROLLUPS
from autotune.protocol.supervision import SupervisorSpec
from autotune.sandbox import first_process, fork_callbacks, landlock, namespaces, overlay
from autotune.sandbox.descriptors import readable
from autotune.sandbox.process_tree import PR_SET_PDEATHSIG, prctl, send

MAX_DESCRIPTORS = 4096
"""A trial inherits none of the supervisor's descriptors below this number."""
OOM_SCORE_ADJ = "500"
"""Makes the kernel, short of memory, end a trial before the user's other processes."""

Run = Callable[[SupervisorSpec], None]
"""Runs the script of a spec in this process, and ends the process."""


class Origin(NamedTuple):
    """The process that a trial is forked from; a forked trial executes no command."""

    run: Run | None
    """Runs the script in the trial's process; None makes `main` return there, for the trial to go on."""
    kept: tuple[int, ...]
    """Descriptors for the trial to keep open."""
    rollups: tuple[int, ...] = ()
    """Descriptors of the kernel's account of the memory of the processes that the trial is forked from."""


def start(spec: SupervisorSpec, slave: int, origin: Origin | None) -> tuple[int, int]:
    """Starts the command behind the terminal.

    Args:
        spec: Of the trial.
        slave: The trial's side of the terminal.
        origin: The process to fork from; None executes the command.

    Returns:
        The pid of the trial's first process, and a pipe with the script's wait status. The pipe is -1 when the first
        process is the script. The pid is 0 in a forked trial, which goes on from here.

    Raises:
        OSError: The command cannot be started.
    """
    has_first = spec.layers is not None and spec.layers.has_pids
    if spec.layers is not None and not namespaces.can_mount():
        namespaces.own_users()
    if has_first:
        namespaces.unshare(namespaces.CLONE_NEWPID)
    error_read, error_write = os.pipe()
    status_read, status_write = os.pipe() if has_first else (-1, -1)
    pid = os.fork()
    if pid == 0:
        os.close(error_read)
        _become_trial(spec, slave, (error_write, status_write), origin)
        return 0, -1
    os.close(error_write)
    if has_first:
        os.close(status_write)
    # A slow mount may outlive the tuner.
    readable(error_read, 0)
    failure = os.read(error_read, 4096) if readable(error_read, limit_s=0) else b"it was called off"
    os.close(error_read)
    if failure:
        send(pid, signal.SIGKILL)
        raise OSError(failure.decode(errors="replace"))
    return pid, status_read


def _become_trial(spec: SupervisorSpec, slave: int, pipes: tuple[int, int], origin: Origin | None) -> None:
    """In the child: enters session, terminal and sandbox, then executes the command.

    The terminal controls no session, so a password prompt fails at once instead of waiting for an answer. A failure is
    written to the first pipe, and exec closes the first pipe. With a second pipe this process is the first of a process
    namespace, and the script's process is a child.
    """
    error_write, status_write = pipes
    try:
        _leave_supervisor(slave, pipes, origin)
        _enter_sandbox(spec)
        if _is_supervisor_gone(error_write):
            os._exit(127)
        if status_write >= 0:
            _split_first_process(error_write, status_write, is_forked=origin is not None)
        _become_script(spec, error_write, origin)
    except FileNotFoundError as error:
        name = os.fsdecode(error.filename or spec.command[0])
        what = f"{name!r} is run by a program that is not there" if Path(name).exists() else f"there is no {name!r}"
        os.write(error_write, what.encode(errors="replace")[:4000])
    except BaseException as error:
        os.write(error_write, f"{spec.command[0]!r}: {error}".encode(errors="replace")[:4000])
    else:
        return
    os._exit(127)


def _leave_supervisor(slave: int, pipes: tuple[int, int], origin: Origin | None) -> None:
    """Gives this process a session, the terminal, default signals and limits of its own."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for standard in (0, 1, 2):
        os.dup2(slave, standard)
    inherited = (*origin.kept, *origin.rollups) if origin is not None else ()
    _close_all_but(*(pipe for pipe in pipes if pipe >= 0), *inherited)
    _reset_signals()
    _raise_oom_score()
    # Writing the core file of a large process takes seconds, and the file would land in the user's folder.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _enter_sandbox(spec: SupervisorSpec) -> None:
    if spec.layers is not None:
        overlay.enter(spec.layers)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # A change of user namespace may clear the signal.
    if spec.writable is not None:
        landlock.restrict(spec.writable, is_forked_from=spec.is_prelude)


def _split_first_process(error_write: int, status_write: int, *, is_forked: bool) -> None:
    """Forks the script's process, and returns there alone."""
    pid = os.fork()
    if pid:
        os.close(error_write)
        first_process.stay(pid, status_write, is_forked=is_forked)
    os.close(status_write)
    os.setsid()


def _become_script(spec: SupervisorSpec, error_write: int, origin: Origin | None) -> None:
    """Executes the command or runs the script; returns in a forked trial without `origin.run`."""
    os.chdir(spec.cwd)
    if spec.layers is not None:
        held_back = namespaces.LATER_RIGHTS if spec.is_prelude else ()
        namespaces.drop_rights(is_root=os.geteuid() == 0, held_back=held_back)
    if origin is None:
        os.execvp(spec.command[0], spec.command)
    os.close(error_write)
    fork_callbacks.unmute()
    if origin.run is not None:
        origin.run(with_rollups(spec, origin))


def with_rollups(spec: SupervisorSpec, origin: Origin) -> SupervisorSpec:
    """The spec with the descriptors of `origin.rollups` among the trial's variables."""
    rollups = " ".join(map(str, origin.rollups)) or None
    return spec._replace(environment={**spec.environment, SERVER_ROLLUPS: rollups})


def _is_supervisor_gone(error_write: int) -> bool:
    """Whether the pipe has no reader. A supervisor in another process namespace has no pid to ask for."""
    poller = select.poll()
    poller.register(error_write, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))


def _close_all_but(*kept: int) -> None:
    """Closes all descriptors except the standard descriptors and `kept`."""
    begin = 3
    for number in (*sorted(kept), MAX_DESCRIPTORS):
        os.closerange(begin, number)
        begin = number + 1


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGCHLD", "SIGXFSZ"):
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _raise_oom_score() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJ)
    except OSError:
        return
