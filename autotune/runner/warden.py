"""The small process between the tuner and a trial: it ends the trial's whole tree whatever happens.

Run with `python -I -S`: it imports the standard library alone and starts in a few milliseconds. Its environment is the
trial's. It

* makes the copy-on-write layer in a mount namespace of the trial's own (`layers.py`),
* gives the script a terminal with nothing to read, and keeps its output within bounds,
* is the subreaper of all that the script starts, so that nothing can leave the tree,
* ends the tree when the script ends, when the tuner says so, and when the tuner is gone: it reads from a pipe whose
  write end only the tuner holds, and end-of-file on it is the tuner's death, by SIGKILL too,
* removes what the tree left in shared memory (`shared_files.py`),
* says how the command ended on its standard output, a pipe to the tuner that no trial can reach.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import resource
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autotune.runner import layers, shared_files
from autotune.runner.descendants import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, Descendants, prctl, send

HEAD_BYTES = 1 << 20
"""Output kept from the beginning."""
TAIL_BYTES = 1 << 16
"""Output kept from the end, when there is more than the beginning."""
TERM_GRACE_S = 1.0
"""Between SIGTERM and SIGKILL: enough to flush a log, not enough to save a checkpoint, which nobody wants here."""
DRAIN_S = 0.5
"""Longest time to read what is left in the terminal."""
OOM_SCORE_ADJ = "500"
"""The kernel, short of memory, ends a trial before the user's other processes."""


class BoundedLog:
    """A log file with the first MiB of the output and the last 64 KiB."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._num_bytes = 0
        self._tail = b""

    def write(self, data: bytes) -> None:
        """Keeps what fits; a full disk loses output, not the trial."""
        room = max(0, HEAD_BYTES - self._num_bytes)
        self._num_bytes += len(data)
        self._tail = (self._tail + data[room:])[-TAIL_BYTES:]
        if room:
            self._put(data[:room])

    def close(self) -> None:
        """Writes the end of an output that was longer than the head."""
        left_out = self._num_bytes - HEAD_BYTES - len(self._tail)
        if left_out > 0:
            self._put(b"\n... %d bytes left out ...\n" % left_out)
        self._put(self._tail)
        self._file.close()

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError:
            return


class Terminal:
    """A terminal for the script's output. It stays open here, so that a script may close its own side and come back.

    It is the script's input as well, so that a script that asks for the terminal's size there is told; but there is
    nothing to read: a read is at the end of the file at once.
    """

    def __init__(self, log: BoundedLog) -> None:
        self._log = log
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        attributes = termios.tcgetattr(self.slave)
        attributes[1] &= ~termios.ONLCR
        attributes[3] &= ~(termios.ICANON | termios.ECHO)
        attributes[6][termios.VMIN] = attributes[6][termios.VTIME] = 0
        termios.tcsetattr(self.slave, termios.TCSANOW, attributes)

    def copy(self) -> None:
        """Moves what can be read at once to the log."""
        self._log.write(os.read(self.master, 65536))

    def drain(self, limit_s: float = DRAIN_S) -> None:
        """Moves all that is there to the log; bounded, because a stray may print for ever."""
        deadline = time.monotonic() + limit_s
        while select.select([self.master], [], [], 0)[0] and time.monotonic() < deadline:
            self.copy()


Run = Callable[[dict[str, Any]], None]
"""Runs the script of a spec in this process, and ends it."""


def start(spec: dict[str, Any], terminal: Terminal, run: Run | None, replaced: Sequence[str]) -> int:
    """Starts the command behind the terminal; returns its pid.

    Args:
        spec: Of the trial.
        terminal: Where it prints.
        run: What runs it in the new process; None executes its command.
        replaced: Folders over which this process already has layers, that the trial's own take the place of.

    Raises:
        OSError: It cannot be started.
    """
    error_read, error_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(error_read)
        _become_command(spec, terminal.slave, error_write, run, replaced)
    os.close(error_write)
    # The tuner may be gone before a slow mount is through.
    select.select([error_read, 0], [], [])
    failure = b"it was called off" if not select.select([error_read], [], [], 0)[0] else os.read(error_read, 4096)
    os.close(error_read)
    if failure:
        send(pid, signal.SIGKILL)
        raise OSError(failure.decode(errors="replace"))
    return pid


def _become_command(
    spec: dict[str, Any], slave: int, error_write: int, run: Run | None, replaced: Sequence[str]
) -> None:
    """In the child: session, terminal, layer, exec. A failure is written to the pipe that exec closes.

    The terminal controls nothing: a password prompt finds none and fails at once, where it would wait for ever.
    """
    warden = os.getppid()
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(slave, 0)
        os.dup2(slave, 1)
        os.dup2(slave, 2)
        os.closerange(3, error_write)
        os.closerange(error_write + 1, 4096)
        _reset_signals()
        _raise_oom_score()
        # A core file of a large process takes seconds, and would land in the user's folder.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if spec["layers"]:
            layers.enter(spec["layers"], replaced)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # A change of user namespace may clear it.
        if os.getppid() != warden:
            os._exit(127)
        os.chdir(spec["cwd"])
        if run is None:
            os.execvp(spec["command"][0], spec["command"])
        os.close(error_write)
        run(spec)
    except FileNotFoundError as error:
        name = os.fsdecode(error.filename or spec["command"][0])
        what = f"{name!r} is run by a program that is not there" if Path(name).exists() else f"there is no {name!r}"
        os.write(error_write, what.encode(errors="replace")[:4000])
    except BaseException as error:
        os.write(error_write, f"{spec['command'][0]!r}: {error}".encode(errors="replace")[:4000])
    os._exit(127)


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


def main(spec_path: str, run: Run | None = None, replaced: Sequence[str] = ()) -> None:
    """Runs one trial from its spec file; `run` and `replaced` as in `start`."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    child_ended = signals_of_children()
    spec = json.loads(Path(spec_path).read_text())
    log = BoundedLog(Path(spec["log"]))
    terminal, tree = Terminal(log), Descendants()
    in_shared_memory = shared_files.present()
    ending: dict[str, Any] = {"status": None, "error": ""}
    try:
        pid = start(spec, terminal, run, replaced)
        watch(pid, terminal, tree, child_ended)
        terminal.drain()
        ending["status"] = tree.statuses.get(pid)
    except OSError as error:
        ending["error"] = str(error)
    finally:
        tree.end(grace_s=0.0, meanwhile=terminal.drain)
    shared_files.remove_new(in_shared_memory)
    log.close()
    if _tuner_is_gone():
        layers.remove_tree(Path(spec["folder"]))
    else:
        os.write(1, json.dumps(ending).encode())


def _tuner_is_gone() -> bool:
    """End-of-file on the order pipe: nobody will read this trial's folder any more."""
    while select.select([0], [], [], 0)[0]:
        if not os.read(0, 64):
            return True
    return False
