"""Reads a trial's folder without trust: the user's processes may have written anything."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from autotune.model.gauges import TrialPhase
from autotune.model.result import RankResult
from autotune.protocol.codec import from_plain
from autotune.protocol.paths import PROFILE_FILES, TrialPaths
from autotune.protocol.progress_marks import SLOT_BYTES, Mark, read_marks

MAX_RESULT_BYTES = 16 << 20
"""Largest report of ours."""
MAX_RANKS = 1024
"""Most reports of one trial."""
MAX_PROGRESS_BYTES = 4096
LEAST_PROGRESS_BYTES = (Mark.STOP + 1) * SLOT_BYTES
"""Size of a file with all marks of phases; a shorter file is none of ours."""
MAX_PROFILE_BYTES = 1 << 30
MAX_LOG_BYTES = 2 << 20
ORDERS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Escape sequences of terminals for colours, movements and titles."""
LOG_TAIL_CHARS = 4000


class UnreadableError(Exception):
    """A file cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a trial in the trial's shared file."""

    num_steps: int = 0
    in_window: bool = False
    phase: TrialPhase = TrialPhase.STARTING
    num_samples: int = 0
    """Samples of the first rank since the start; 0 if unknown."""
    waited_s: float = 0.0
    """Seconds of waiting for data since the start; 0 if unknown."""
    has_reported: bool = False
    """Whether a process that trained has written its last report."""
    awaits: bool = False
    """Whether the measurement is over, and the process waits for another request."""


def read_progress(paths: TrialPaths) -> Progress:
    """State in the trial's shared file; the default without a file of ours."""
    try:
        data = read_bounded(paths.progress, MAX_PROGRESS_BYTES)
    except (OSError, UnreadableError):
        return Progress()
    if len(data) < LEAST_PROGRESS_BYTES:
        return Progress()
    marks = read_marks(data)
    phase = TrialPhase.STARTING if marks[Mark.STEPS] == 0 else TrialPhase.WARM_UP
    for mark, entered in (
        (Mark.COMPUTE, TrialPhase.COMPUTE),
        (Mark.OPEN, TrialPhase.RAMP),
        (Mark.WINDOW, TrialPhase.WINDOW),
        (Mark.STOP, TrialPhase.ENDING),
    ):
        phase = entered if marks[mark] else phase
    return Progress(
        num_steps=marks[Mark.STEPS],
        in_window=marks[Mark.WINDOW] != 0 and marks[Mark.STOP] == 0,
        phase=phase,
        num_samples=marks[Mark.SAMPLES],
        waited_s=marks[Mark.WAIT_US] / 1e6,
        has_reported=marks[Mark.REPORTED] != 0,
        awaits=marks[Mark.AWAITS] != 0,
    )


def read_ranks(paths: TrialPaths) -> tuple[tuple[RankResult, ...], str]:
    """The reports in order of rank, and why a report cannot be used; empty when all reports can."""
    try:
        ranks = [_read_rank(paths.results / name) for name in _report_names(paths.results)]
    except (OSError, UnreadableError) as error:
        return (), str(error)
    if len({rank.world_size for rank in ranks}) > 1:
        return (), "its ranks do not agree on how many they are"
    return tuple(sorted(ranks, key=lambda rank: rank.rank)), ""


def read_log_tail(paths: TrialPaths) -> str:
    """End of the script's output, without escape sequences and without characters that databases refuse."""
    try:
        data = read_bounded(paths.log, MAX_LOG_BYTES)
    except (OSError, UnreadableError):
        return ""
    text = ORDERS.sub("", data[-4 * LOG_TAIL_CHARS :].decode(errors="replace"))
    return "".join(char for char in text if char.isprintable() or char in "\n\t\r")[-LOG_TAIL_CHARS:]


def copy_profiles(paths: TrialPaths, folder: Path) -> None:
    """Copies the existing profiles of a diagnosis over the profiles of an earlier diagnosis.

    Raises:
        OSError: The folder or a file cannot be written.
    """
    for name in PROFILE_FILES:
        try:
            data = read_bounded(paths.profiles / name, MAX_PROFILE_BYTES)
        except (FileNotFoundError, UnreadableError):
            (folder / name).unlink(missing_ok=True)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Content of a plain file; a link, a pipe or a device in place of the file is neither followed nor waited for.

    Raises:
        OSError: The file cannot be opened.
        UnreadableError: The file is no plain file, or too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableError(f"{path.name} is no plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise UnreadableError(f"{path.name} is larger than any report of ours")
    return data


def _report_names(folder: Path) -> list[str]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, 4 * MAX_RANKS)]
    reports = [name for name in names if name.startswith("rank-") and name.endswith(".json")]
    if len(reports) > MAX_RANKS:
        raise UnreadableError(f"there are more than {MAX_RANKS} of them")
    return reports


def _read_rank(path: Path) -> RankResult:
    try:
        rank = from_plain(RankResult, _clean(json.loads(read_bounded(path, MAX_RESULT_BYTES))))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{path.name}: {str(error)[:300]}") from error
    if path.name != f"rank-{rank.rank}.json":
        raise UnreadableError(f"{path.name} is the report of rank {rank.rank}")
    return rank


def _clean(value: Any) -> Any:
    """The value with text for every database and terminal: no half surrogates, no NUL."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
