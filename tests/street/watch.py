"""Runs a command for a bounded time, and counts progress."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tests.street.progress import Counter, Lines
from tests.street.script import Progress, Script

TAIL_LINES = 40
MARKS = 4
"""Lines of progress enough for a rate."""
GRACE_S = 8.0
"""Seconds for processes to end by themselves before a kill."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a command is watched, in seconds."""

    settle_s: float = 5.0
    """Left out after the first progress beyond 0: workers start, kernels are chosen."""
    window_s: float = 20.0
    """Counted from the first progress afterwards; up to three times as long with fewer than MARKS lines."""
    start_s: float = 150.0
    """Longest wait for the first progress beyond 0."""

    def of(self, script: Script, settle_s: float) -> Limits:
        """The limits for the script, with at least `settle_s` seconds left out."""
        own_settle_s = self.settle_s if script.settle_s is None else script.settle_s
        window_s = self.window_s if script.window_s is None else script.window_s
        return replace(self, settle_s=max(own_settle_s, settle_s), window_s=window_s)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The outcome of a command."""

    rate: float | None
    """Samples per second by the command's output; None with too little progress."""
    first_s: float | None
    """Seconds until the first line of progress."""
    wall_s: float
    exit_code: int | None
    """None for a command stopped at the limit."""
    tail: tuple[str, ...]
    """The last lines of the output."""
    epoch_length: float | None = None
    """Length of an epoch by the output, in the unit of its positions."""
    longest_gap_s: float | None = None
    """Longest time between two lines of progress in the counted part: a rate with a pause in it is no steady one."""


def watch(
    command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], progress: Progress, limits: Limits, log: Path
) -> Watched:
    """The rate of the command by the command's output; at the limits the command ends with all children."""
    counter = Counter(progress)
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    started = time.monotonic()
    child = subprocess.Popen(
        command, cwd=cwd, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        with log.open("wb") as kept:
            _read(child, counter, tail, limits, kept.write, started)
        exit_code = child.poll()
    finally:
        end_tree(child)
    first = counter.first_s
    return Watched(
        rate=counter.rate(limits.settle_s),
        first_s=None if first is None else first - started,
        wall_s=time.monotonic() - started,
        exit_code=exit_code,
        tail=tuple(tail),
        epoch_length=counter.epoch_length,
        longest_gap_s=counter.longest_gap_s(limits.settle_s),
    )


def _read(
    child: subprocess.Popen[bytes],
    counter: Counter,
    tail: deque[str],
    limits: Limits,
    keep: Callable[[bytes], int],
    started: float,
) -> None:
    """Reads the child's output until the end of the limits or of the child."""
    decoder, lines = codecs.getincrementaldecoder("utf-8")("replace"), Lines()
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    while True:
        now = time.monotonic()
        end = _end(counter, limits, started)
        if now >= end:
            return
        if not select.select([pipe], [], [], min(1.0, end - now))[0]:
            if child.poll() is not None:
                return
            continue
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            return
        keep(chunk)
        came = time.monotonic()
        for line in lines.feed(decoder.decode(chunk)):
            tail.append(line)
            counter.line(came, line)
        if counter.progress.has_open_line:
            counter.line(came, lines.rest)


def _end(counter: Counter, limits: Limits, started: float) -> float:
    """When to stop reading, by the clock of `started`."""
    if counter.begun_s is None:
        return started + limits.start_s
    settled = counter.begun_s + limits.settle_s
    counted = [time_s for time_s, *_ in counter.marks if time_s >= settled]
    if not counted:
        return settled + 3 * limits.window_s
    return counted[0] + limits.window_s * (1 if len(counted) >= MARKS else 3)


def end_tree(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and all descendants, and waits for the last."""
    tree: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(child.pid)
        tree = [*parent.children(recursive=True), parent]
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(tree, timeout=GRACE_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=GRACE_S)
    if child.stdout is not None:
        child.stdout.close()
    child.wait()
