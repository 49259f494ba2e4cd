"""The small process between the tuner and a trial: it ends the trial's whole tree whatever happens.

Run as a file with `python -I -S`, so it imports the standard library alone and starts in a few milliseconds. It

* makes the copy-on-write layer in a mount namespace of the trial's own (`layers.py`),
* gives the script a terminal, and keeps its output within bounds,
* is the subreaper of all that the script starts, so that nothing can leave the tree,
* ends the tree when the script ends, when the tuner says so, and when the tuner is gone: it reads from a pipe whose
  write end only the tuner holds, and end-of-file on it is the tuner's death, by SIGKILL too,
* writes how the command ended to one file, by rename.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import sys
import termios
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
HEAD_BYTES = 1 << 20
"""Output kept from the beginning."""
TAIL_BYTES = 1 << 16
"""Output kept from the end, when there is more than the beginning."""
TERM_GRACE_S = 1.0
"""Between SIGTERM and SIGKILL: enough to flush a log, not enough to save a checkpoint, which nobody wants here."""
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


def prctl(option: int, value: int) -> None:
    """Calls prctl where there is one; without it orphans are found by their session only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Process ids below `root`, nearest first, read from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(0), [])
        found.extend(below)
        queue.extend(below)
    return found


def send_all(pids: list[int], signum: int) -> None:
    """Signals every process of the list that still exists."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def reap() -> dict[int, int]:
    """Collects all ended children, as pid -> wait status."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def end_tree(*, grace_s: float) -> None:
    """Ends everything below this process: SIGTERM, a bounded wait, SIGKILL until nothing is left.

    Freezing first keeps a tree that forks as fast as it is killed from getting away.
    """
    me = os.getpid()
    if grace_s > 0:
        send_all(descendants(me), signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            reap()
            if not descendants(me):
                return
            time.sleep(0.02)
    while True:
        left = descendants(me)
        send_all(left, signal.SIGSTOP)
        send_all(left, signal.SIGKILL)
        reap()
        if not descendants(me):
            return
        time.sleep(0.01)


def start(spec: dict[str, Any]) -> tuple[int, int]:
    """Starts the command behind a terminal; returns its pid and the terminal's master descriptor."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~termios.ECHO
    attributes[1] &= ~termios.ONLCR
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    error_read, error_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(master)
        os.close(error_read)
        _become_command(spec, slave, error_write)
    os.close(slave)
    os.close(error_write)
    failure = os.read(error_read, 4096)
    os.close(error_read)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(failure.decode(errors="replace"))
    os.write(master, b"\x04")
    return pid, master


def _become_command(spec: dict[str, Any], slave: int, error_write: int) -> None:
    """In the child: session, terminal, layer, exec. A failure is written to the pipe that exec closes."""
    try:
        os.set_inheritable(error_write, False)
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for descriptor in (0, 1, 2):
            os.dup2(slave, descriptor)
        os.closerange(3, error_write)
        os.closerange(error_write + 1, 4096)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        _raise_oom_score()
        if spec["layers"]:
            sys.path.insert(0, str(Path(__file__).parent))
            import layers

            layers.enter(spec["layers"])
        os.chdir(spec["cwd"])
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    except BaseException as error:
        os.write(error_write, f"{type(error).__name__}: {error}".encode()[:4000])
    os._exit(127)


def _raise_oom_score() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJ)
    except OSError:
        return


def watch(pid: int, master: int, log: BoundedLog) -> tuple[int, bool]:
    """Copies output until the command ends or the tuner says stop; returns (wait status, whether it was stopped)."""
    statuses: dict[int, int] = {}
    readers = [0, master]
    while pid not in statuses:
        ready, _, _ = select.select(readers, [], [], 0.05)
        if master in ready and not _copy(master, log):
            readers.remove(master)
        if 0 in ready:
            order = os.read(0, 1)
            end_tree(grace_s=0.0 if order == b"k" else TERM_GRACE_S)
            _drain(master, log)
            return statuses.get(pid, -1), True
        statuses.update(reap())
    _drain(master, log)
    return statuses[pid], False


def _copy(master: int, log: BoundedLog) -> bool:
    try:
        data = os.read(master, 65536)
    except OSError:
        return False
    log.write(data)
    return bool(data)


def _drain(master: int, log: BoundedLog) -> None:
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline and select.select([master], [], [], 0)[0]:
        if not _copy(master, log):
            return


def main() -> int:
    """Runs one trial from the spec file named as the first argument."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    log = BoundedLog(Path(spec["log"]))
    ending: dict[str, Any] = {"status": None, "stopped": False, "error": ""}
    try:
        pid, master = start(spec)
        ending["status"], ending["stopped"] = watch(pid, master, log)
    except OSError as error:
        ending["error"] = str(error)
    end_tree(grace_s=0.0)
    log.close()
    _write(Path(spec["exit_status"]), ending)
    if ending["stopped"] and _tuner_is_gone():
        _remove(Path(spec["folder"]))
    return 0


def _write(path: Path, ending: dict[str, Any]) -> None:
    try:
        aside = path.with_suffix(".part")
        aside.write_text(json.dumps(ending))
        aside.replace(path)
    except OSError:
        return


def _tuner_is_gone() -> bool:
    """End-of-file on the order pipe: nobody will read this trial's folder any more."""
    return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 1)


def _remove(folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import layers

    layers.make_removable(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
