"""The small process between the tuner and a trial: it ends the trial's whole tree whatever happens.

Run with `python -I -S`: it imports the standard library alone and starts in a few milliseconds. Its environment is the
trial's. It

* makes the copy-on-write layers in a mount namespace of the trial's own (`layers.py`), and a process namespace, whose
  first process (`first.py`) ends with the script, and with which all the others end,
* gives the script a terminal with nothing to read, and keeps its output within bounds,
* is the subreaper of all that the script starts, so that nothing can leave the tree,
* ends the tree when the script ends, when the tuner says so, and when the tuner is gone: it reads from a pipe whose
  write end only the tuner holds, and end-of-file on it is the tuner's death, by SIGKILL too,
* removes what the tree left in shared memory (`shared_files.py`), after those that tidy up there by themselves,
* says how the command ended on its standard output, a pipe to the tuner that no trial can reach.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from autotune.sandbox import first_process, landlock, namespaces, overlay, shared_files
from autotune.sandbox.process_tree import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, Descendants, prctl, send
from autotune.sandbox.pseudo_terminal import BoundedLog, Terminal, open_terminal

TERM_GRACE_S = 1.0
"""Between SIGTERM and SIGKILL: enough to flush a log, not enough to save a checkpoint, which nobody wants here."""
MAX_DESCRIPTORS = 4096
"""A trial gets none of ours below it."""
LATEST = "latest"
"""File in the folder of a run that trials are forked from: the folder of the latest of them."""
LIGHT = "import sys; sys.path.append(sys.argv[1]); from autotune.sandbox.supervisor import resume; resume(sys.argv[2])"
OOM_SCORE_ADJ = "500"
"""The kernel, short of memory, ends a trial before the user's other processes."""


Run = Callable[[dict[str, Any]], None]
"""Runs the script of a spec in this process, and ends it."""


class Origin(NamedTuple):
    """What this process was forked from, where its trial is forked as well, and no command is executed."""

    run: Run | None
    """What runs the script in the trial's process; None lets that return from `main`, and go on where this one was."""
    kept: tuple[int, ...]
    """Descriptors that stay open in the trial."""
    rollups: tuple[int, ...] = ()
    """Descriptors of what the kernel says of the memory of the processes that the trial is forked from."""


def start(spec: dict[str, Any], slave: int, origin: Origin | None) -> tuple[int, int]:
    """Starts the command behind the terminal.

    Args:
        spec: Of the trial.
        slave: The terminal that it prints to.
        origin: What it is forked from; None executes its command.

    Returns:
        The pid of the trial's first process, and a pipe that says how the script ended, -1 where the first process is
        the script. The pid is 0 in a trial that goes on where this process was.

    Raises:
        OSError: It cannot be started.
    """
    plan = spec["layers"]
    has_first = bool(plan) and bool(plan["has_pids"])
    if plan and not namespaces.can_mount():
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
    # The tuner may be gone before a slow mount is through.
    select.select([error_read, 0], [], [])
    failure = b"it was called off" if not select.select([error_read], [], [], 0)[0] else os.read(error_read, 4096)
    os.close(error_read)
    if failure:
        send(pid, signal.SIGKILL)
        raise OSError(failure.decode(errors="replace"))
    return pid, status_read


def _become_trial(spec: dict[str, Any], slave: int, pipes: tuple[int, int], origin: Origin | None) -> None:
    """In the child: session, terminal, layers, exec. A failure is written to the first pipe, which exec closes.

    The terminal controls nothing: a password prompt finds none and fails at once, where it would wait for ever. With a
    second pipe this is the first process of a namespace, and the script's process is its child.
    """
    error_write, status_write = pipes
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(slave, 0)
        os.dup2(slave, 1)
        os.dup2(slave, 2)
        _close_all_but(*filter(_is_open, pipes), *((*origin.kept, *origin.rollups) if origin is not None else ()))
        _reset_signals()
        _raise_oom_score()
        # A core file of a large process takes seconds, and would land in the user's folder.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if spec["layers"]:
            overlay.enter(spec["layers"])
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # A change of user namespace may clear it.
        if spec.get("writable") is not None:
            landlock.restrict(spec["writable"], is_forked_from=bool(spec.get("prepares")))
        if _is_supervisor_gone(error_write):
            os._exit(127)
        if status_write >= 0:
            pid = os.fork()
            if pid:
                os.close(error_write)
                first_process.stay(pid, status_write, is_forked=origin is not None)
            os.close(status_write)
            os.setsid()
        _become_script(spec, error_write, origin)
    except FileNotFoundError as error:
        name = os.fsdecode(error.filename or spec["command"][0])
        what = f"{name!r} is run by a program that is not there" if Path(name).exists() else f"there is no {name!r}"
        os.write(error_write, what.encode(errors="replace")[:4000])
    except BaseException as error:
        os.write(error_write, f"{spec['command'][0]!r}: {error}".encode(errors="replace")[:4000])
    else:
        return
    os._exit(127)


def _become_script(spec: dict[str, Any], error_write: int, origin: Origin | None) -> None:
    """Executes the command or runs the script; returns where that goes on where this process was."""
    os.chdir(spec["cwd"])
    if spec["layers"]:
        held_back = namespaces.LATER_RIGHTS if spec.get("prepares") else ()
        namespaces.drop_rights(is_root=os.geteuid() == 0, held_back=held_back)
    if origin is None:
        os.execvp(spec["command"][0], spec["command"])
    os.close(error_write)
    spec["environment"]["AUTOTUNE_SERVER_ROLLUPS"] = " ".join(map(str, origin.rollups)) or None
    if origin.run is not None:
        origin.run(spec)


def _is_open(descriptor: int) -> bool:
    return descriptor >= 0


def _is_supervisor_gone(error_write: int) -> bool:
    """Whether nobody reads what this process says: a parent in another process namespace has no number here."""
    poller = select.poll()
    poller.register(error_write, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))


def _close_all_but(*kept: int) -> None:
    """Closes all descriptors but the standard ones and these."""
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


def watch(pid: int, terminal: Terminal, tree: Descendants, child_ended: int) -> None:
    """Copies output until the command ends, or the tuner says stop or is gone: then everything is ended."""
    tree.reap()  # It may have ended before anybody listened.
    while pid not in tree.statuses:
        ready, _, _ = select.select([0, terminal.master, child_ended], [], [])
        if terminal.master in ready:
            terminal.copy()
        if child_ended in ready:
            os.read(child_ended, 4096)
            tree.reap()
        if 0 in ready and pid not in tree.statuses:
            # t: time is up, and a last word is welcome. k, and the tuner's death: nobody listens any more.
            grace_s = TERM_GRACE_S if os.read(0, 1) == b"t" else 0.0
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


class Started(NamedTuple):
    """What is to be known of a trial that was started."""

    spec_path: str
    pid: int | None
    """Of its first process; None where it could not be."""
    status: int
    """Descriptor that says how the script ended; -1 where the first process is the script."""
    error: str
    master: int
    in_shared_memory: list[tuple[str, int]]
    """What was there before."""


def main(spec_path: str, origin: Origin | None = None) -> dict[str, Any] | None:
    """Runs one trial from its spec file; `origin` as in `start`.

    Returns:
        None when the trial is over; in the process of a trial that goes on where this one was, its spec.
    """
    _ignore_signals()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    spec: dict[str, Any] = json.loads(Path(spec_path).read_text())
    in_shared_memory = sorted(shared_files.present())
    master, slave = open_terminal()
    pid, status, error = None, -1, ""
    try:
        pid, status = start(spec, slave, origin)
    except OSError as failure:
        error = str(failure)
    if pid == 0:
        return spec
    started = Started(spec_path, pid, status, error, master, in_shared_memory)
    if origin is not None:
        _become_light(started, slave)
    see_through(started)
    return None


def _become_light(started: Started, slave: int) -> None:
    """Goes on in a fresh interpreter, where there is one: this process holds all that it was forked from in memory."""
    for descriptor in filter(_is_open, (started.master, slave, started.status)):
        os.set_inheritable(descriptor, True)
    arguments = ["-I", "-S", "-c", LIGHT, overlay.PACKAGE_PARENT, json.dumps(started)]
    with suppress(OSError):
        os.execv(sys.executable, [sys.executable, *arguments])


def resume(started: str) -> None:
    """What a supervisor that has become light goes on with: its trial has been started."""
    _ignore_signals()
    spec_path, pid, status, error, master, in_shared_memory = json.loads(started)
    see_through(Started(spec_path, pid, status, error, master, [(name, inode) for name, inode in in_shared_memory]))


def see_through(started: Started) -> None:
    """Watches a trial to its end, ends what is left of it, and says how it ended."""
    child_ended = signals_of_children()
    spec: dict[str, Any] = json.loads(Path(started.spec_path).read_text())
    left = shared_files.SharedFiles(started.in_shared_memory)
    log, tree = BoundedLog(Path(spec["log"])), Descendants(left.note)
    if "said" in spec:
        log.write(Path(spec["said"]).read_bytes())
    terminal = Terminal(started.master, log)
    ending: dict[str, Any] = {"status": None, "error": started.error}
    try:
        if started.pid is not None:
            watch(started.pid, terminal, tree, child_ended)
            terminal.drain()
            ending["status"] = _status(started, tree)
    except OSError as error:
        ending["error"] = str(error)
    finally:
        tree.end(grace_s=0.0, meanwhile=terminal.drain)
    tree.let_tidy()
    left.note(tree.statuses)
    left.remove()
    log.close()
    if _tuner_is_gone():
        _remove_folders(Path(started.spec_path).parent)
    else:
        os.write(1, json.dumps(ending).encode())


def _remove_folders(folder: Path) -> None:
    """Removes a trial's folder, and the folder of the latest trial that was forked from it: its supervisor is gone.

    The script can write to the folder, so nothing is removed elsewhere, whatever a file in the folder says.
    """
    with suppress(OSError, ValueError):
        latest = Path((folder / LATEST).read_text())
        if latest.parent == folder.parent and latest.name not in ("", ".."):
            overlay.remove_tree(latest)
    overlay.remove_tree(folder)


def _status(started: Started, tree: Descendants) -> int | None:
    """Wait status of the script; that of the first process of its namespace where that was ended before it could say.

    None where neither has ended.
    """
    assert started.pid is not None
    if started.pid in tree.statuses and started.status >= 0:
        said = os.read(started.status, 64)
        if said:
            return int(said)
    return tree.statuses.get(started.pid)


def _ignore_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _tuner_is_gone() -> bool:
    """End-of-file on the order pipe: nobody will read this trial's folder any more."""
    while select.select([0], [], [], 0)[0]:
        if not os.read(0, 64):
            return True
    return False
