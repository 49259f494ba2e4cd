"""The small process between the tuner and a trial; ends the trial's whole process tree in every case.

Run with `python -I -S`, for a start in a few milliseconds; standard library only. The supervisor's environment is the
trial's. The supervisor

* starts the command in the sandbox (`trial_launch.py`), behind a terminal with bounded output (`pseudo_terminal.py`),
* is the subreaper of all descendants, so no process can leave the tree,
* ends the tree when the script ends, when the tuner orders the end, and when the tuner is gone: end-of-file on a pipe
  of the tuner means the tuner's death, by SIGKILL too,
* removes the tree's files from shared memory (`shared_files.py`), after the tree's own tidying processes,
* reports the end of the command on standard output, a pipe to the tuner and out of the trial's reach.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from autotune.protocol.codec import decode, encode
from autotune.protocol.entry_points import INTERPRETER, LIGHT_SUPERVISOR
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import Order, SupervisorReport, SupervisorSpec
from autotune.sandbox import shared_files
from autotune.sandbox.descriptors import readable
from autotune.sandbox.process_tree import PR_SET_CHILD_SUBREAPER, Descendants, ignore_signals, prctl
from autotune.sandbox.pseudo_terminal import HEAD_BYTES, TAIL_BYTES, BoundedLog, Terminal, open_terminal
from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.trial_launch import Origin, start, with_rollups

MAX_PATH_BYTES = 4096
"""Longest path of the system."""
TERM_GRACE_S = 1.0
"""Time between SIGTERM and SIGKILL: enough to flush a log, too little for a checkpoint, which a trial need not save."""


class Started(NamedTuple):
    """A trial after the start: all that the supervisor needs, because the script can change the files of the trial."""

    folder: str
    """The trial's folder."""
    log: int
    """Descriptor of the log."""
    earlier_log: int
    """Descriptor of the prelude's log; -1 without a prelude."""
    pid: int | None
    """Of the first process; None when the start failed."""
    status: int
    """Descriptor of the pipe with the script's wait status; -1 when the first process is the script."""
    error: str
    """Reason of a failed start."""
    master: int
    """The supervisor's side of the terminal."""
    in_shared_memory: tuple[tuple[str, int], ...]
    """Files in shared memory from before the start."""


def main(spec_path: str, origin: Origin | None = None) -> SupervisorSpec | None:
    """Runs one trial from its spec file.

    Args:
        spec_path: A `SupervisorSpec` as JSON.
        origin: The process to fork the trial from; None executes the command.

    Returns:
        None after the trial; the spec in the process of a forked trial that goes on from here.
    """
    ignore_signals()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    spec = decode(SupervisorSpec, Path(spec_path).read_text())
    try:
        log, earlier_log = _opened_logs(spec)
        master, slave = open_terminal()
    except OSError as failure:
        os.write(1, encode(SupervisorReport(error=str(failure))).encode())
        return None
    in_shared_memory = tuple(sorted(shared_files.present()))
    pid, status, error = None, -1, ""
    try:
        pid, status = start(spec, slave, origin)
    except OSError as failure:
        error = str(failure)
    if pid == 0:
        assert origin is not None, "only a forked trial goes on from here"
        return with_rollups(spec, origin)
    started = Started(
        folder=str(Path(spec_path).parent),
        log=log,
        earlier_log=earlier_log,
        pid=pid,
        status=status,
        error=error,
        master=master,
        in_shared_memory=in_shared_memory,
    )
    if origin is not None:
        _become_light(started, slave)
    see_through(started)
    return None


def _opened_logs(spec: SupervisorSpec) -> tuple[int, int]:
    """Descriptors of the new log, and of the prelude's log or -1: no link is followed, and no pipe is waited for."""
    log = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    if spec.earlier_log is None:
        return log, -1
    with suppress(OSError):
        return log, _opened(spec.earlier_log)
    return log, -1


def _opened(path: str) -> int:
    """A descriptor of a file in a script's reach, for reading; raises `OSError` for links and pipes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)


def _become_light(started: Started, slave: int) -> None:
    """Replaces this process by a fresh interpreter, if possible: a forked process holds the server's memory."""
    for descriptor in (started.master, slave, started.status, started.log, started.earlier_log):
        if descriptor >= 0:
            os.set_inheritable(descriptor, True)
    with suppress(OSError):
        os.execv(INTERPRETER, LIGHT_SUPERVISOR.command(encode(started)))


def resume(started: str) -> None:
    """Watches a trial that this process started before `_become_light`.

    Args:
        started: A `Started` as JSON.
    """
    ignore_signals()
    see_through(decode(Started, started))


def see_through(started: Started) -> None:
    """Watches a trial to the end, ends the rest of the tree, and reports to the tuner."""
    child_ended = signals_of_children()
    left = shared_files.SharedFiles(started.in_shared_memory)
    log, tree = BoundedLog(started.log), Descendants(left.note)
    if started.earlier_log >= 0:
        with os.fdopen(started.earlier_log, "rb") as earlier:
            log.write(earlier.read(HEAD_BYTES + TAIL_BYTES))
    terminal = Terminal(started.master, log)
    report = SupervisorReport(error=started.error)
    try:
        if started.pid is not None:
            watch(started.pid, terminal, tree, child_ended)
            terminal.drain()
            report = SupervisorReport(status=_status(started.pid, started.status, tree))
    except OSError as error:
        report = SupervisorReport(error=str(error))
    finally:
        tree.end(grace_s=0.0, meanwhile=terminal.drain)
    tree.let_tidy()
    left.note(tree.statuses)
    left.remove()
    log.close()
    if _tuner_is_gone():
        _remove_folders(Path(started.folder))
    else:
        os.write(1, encode(report).encode())


def watch(pid: int, terminal: Terminal, tree: Descendants, child_ended: int) -> None:
    """Copies output until the command ends, or ends the tree by the tuner's order or at the tuner's death."""
    tree.reap()  # The command may have ended already.
    while pid not in tree.statuses:
        ready = readable(0, terminal.master, child_ended)
        if terminal.master in ready:
            terminal.copy()
        if child_ended in ready:
            os.read(child_ended, 4096)
            tree.reap()
        if 0 in ready and pid not in tree.statuses:
            # Any other order, and the tuner's death, end the tree at once.
            grace_s = TERM_GRACE_S if os.read(0, 1) == Order.REPORT_AND_END else 0.0
            tree.end(grace_s=grace_s, meanwhile=lambda: terminal.drain(0.02))
            return


def signals_of_children() -> int:
    """A descriptor that becomes readable whenever a child ends."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    return read_end


def _status(pid: int, status: int, tree: Descendants) -> int | None:
    """Wait status of the script; None while neither the script nor the first process has ended.

    The first process's own status counts when that process was ended before the report of the script's status.

    Args:
        pid: Of the first process.
        status: The pipe with the script's wait status; -1 when the first process is the script.
        tree: Has reaped the first process, or not yet.
    """
    if pid in tree.statuses and status >= 0:
        text = os.read(status, 64)
        if text:
            return int(text)
    return tree.statuses.get(pid)


def _remove_folders(folder: Path) -> None:
    """Removes a trial's folder, and the folder of the latest trial that was forked from this trial.

    The script can write to the trial's folder, so only a sibling folder is removed, whatever the file there names.
    """
    with suppress(OSError, ValueError):
        with os.fdopen(_opened(str(TrialPaths(folder).latest)), "rb") as file:
            latest = Path(os.fsdecode(file.read(MAX_PATH_BYTES)))
        if latest.parent == folder.parent and latest.name not in ("", ".."):
            remove_tree(latest)
    remove_tree(folder)


def _tuner_is_gone() -> bool:
    """Whether the order pipe is at end-of-file: the trial's folder has no reader any more."""
    while readable(0, limit_s=0):
        if not os.read(0, 64):
            return True
    return False
