"""Writes the report file of a trial's process, and ends the process."""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from autotune.model.result import RankResult, RankStatus
from autotune.protocol.codec import to_plain
from autotune.protocol.paths import TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.trial.meter.rank_sync import Progress

MAX_WAIT_S = 5.0
"""Longest wait of a rank for the reports of all ranks, in seconds; afterwards the rank ends without the missing
reports."""


def identity() -> tuple[int, int]:
    """(rank, world size) of this process, as torch.distributed or the launcher's environment says."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1
    return (rank, world_size) if 0 <= rank < world_size else (0, 1)


def write(paths: TrialPaths, result: RankResult, *, is_bystander: bool = False) -> None:
    """Writes the report to a temporary file and renames the file, so that a reader sees the whole report or nothing.

    Args:
        paths: The trial's files.
        result: The report.
        is_bystander: Whether this process never trained, for instance a launcher. A bystander's report yields to every
            existing report. A bystander's error may be a rank's error, so a report with an error yields only to reports
            of a status other than ENDED.
    """
    target = paths.result(result.rank)
    if is_bystander and _has_better(target.parent, result):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(f"{target}.{os.getpid()}.part")
    aside.unlink(missing_ok=True)
    with aside.open("x") as file:
        file.write(json.dumps(to_plain(result)))
    aside.replace(target)
    is_last_word = result.status is RankStatus.RAISED or (result.status is RankStatus.ENDED and result.world_size == 1)
    if is_last_word and not is_bystander:
        Progress(paths.progress).put(Mark.REPORTED, 1)


def _has_better(folder: Path, result: RankResult) -> bool:
    statuses = {json.loads(path.read_text())["status"] for path in folder.glob("rank-*.json")}
    return bool(statuses - {RankStatus.ENDED} if result.error is not None else statuses)


def wait_for_others(paths: TrialPaths, world_size: int) -> None:
    """Waits up to `MAX_WAIT_S` for the reports of all ranks: a rank may still need this process for a last step."""
    deadline = time.monotonic() + MAX_WAIT_S
    while world_size > 1 and time.monotonic() < deadline:
        if all(paths.result(rank).exists() for rank in range(world_size)):
            return
        time.sleep(0.005)


def end_process(code: int = 0) -> None:
    """Ends this process here, without the script's own end: no last checkpoint, no evaluation, nothing to hang in."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)


class EndWatch:
    """Reports the end of the script before any further code runs at the exit.

    After an error the process ends with its traceback. Otherwise torch would wait five seconds for each worker of an
    unread loader, and a thread of the script might keep the process alive for ever.

    Args:
        report_error: Receives the exception that ends the script.
        report_end: Called when the script ends by itself.
    """

    def __init__(self, report_error: Callable[[BaseException], None], report_end: Callable[[], None]) -> None:
        self._report_error, self._report_end = report_error, report_end
        self._previous = sys.excepthook

    def install(self) -> None:
        """Attaches to the end of this process."""
        self._previous = sys.excepthook
        sys.excepthook = self._hook
        atexit.register(self._at_exit)

    def come_first(self) -> None:
        """Makes the report the first action at the exit, ahead of actions registered by a loader."""
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)

    def _hook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._previous(kind, error, trace)
            return
        self._report_error(error)
        self._previous(kind, error, trace)
        end_process(1)

    def _at_exit(self) -> None:
        # A hook set by the script keeps the error from this class's hook; the interpreter remembers the error.
        error = getattr(sys, "last_value", None)
        if isinstance(error, Exception):
            self._report_error(error)
        self._report_end()


def is_main_process() -> bool:
    """Whether this process was started as the script, and not as a worker or helper of the script."""
    return multiprocessing.parent_process() is None
