"""What a trial's processes left in its folder, read without trust: they are the user's, and may have left anything."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from autotune.model.gauges import TrialPhase
from autotune.model.result import RankResult
from autotune.protocol.codec import from_plain
from autotune.protocol.paths import PROFILE_FILES, TrialPaths

MAX_RESULT_BYTES = 16 << 20
"""A larger report is not ours."""
MAX_RANKS = 1024
"""Nor are more reports than that."""
MAX_PROGRESS_BYTES = 4096
MAX_PROFILE_BYTES = 1 << 30
MAX_LOG_BYTES = 2 << 20
ORDERS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""What terminals take for colours, movements and titles."""
LOG_TAIL_CHARS = 4000


class UnreadableError(Exception):
    """A report is there and cannot be used; says why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the tuner reads of the trial's shared file."""

    num_steps: int = 0
    in_window: bool = False
    phase: TrialPhase = TrialPhase.STARTING
    num_samples: int = 0
    """Of the first rank, from the beginning; 0 where it does not say."""
    waited_s: float = 0.0
    """For data, from the beginning; 0 where it does not say."""
    has_reported: bool = False
    """A process that trained has said its last word."""


def read_progress(paths: TrialPaths) -> Progress:
    """The slots of `trial.ranks.Mark`, a later one of which may be missing; nothing done where there is no file."""
    try:
        data = read_bounded(paths.progress, MAX_PROGRESS_BYTES)
    except (OSError, UnreadableError):
        return Progress()
    slots = [int.from_bytes(data[i : i + 8], sys.byteorder, signed=True) for i in range(0, len(data) - 7, 8)]
    if len(slots) < 5:
        return Progress()
    slots += [0] * (12 - len(slots))
    steps, compute, opened, window, stop, _, _, samples, wait_us, _, _, reported = slots[:12]
    phase = TrialPhase.STARTING if steps == 0 else TrialPhase.WARM_UP
    for mark, entered in (
        (compute, TrialPhase.COMPUTE),
        (opened, TrialPhase.RAMP),
        (window, TrialPhase.WINDOW),
        (stop, TrialPhase.ENDING),
    ):
        phase = entered if mark else phase
    return Progress(
        num_steps=steps,
        in_window=window != 0 and stop == 0,
        phase=phase,
        num_samples=samples,
        waited_s=wait_us / 1e6,
        has_reported=reported != 0,
    )


def read_ranks(paths: TrialPaths) -> tuple[tuple[RankResult, ...], str]:
    """The reports in order of rank, and why one of them cannot be used; empty when all can."""
    try:
        ranks = [_read_rank(paths.results / name) for name in _report_names(paths.results)]
    except (OSError, UnreadableError) as error:
        return (), str(error)
    if len({rank.world_size for rank in ranks}) > 1:
        return (), "its ranks do not agree on how many they are"
    return tuple(sorted(ranks, key=lambda rank: rank.rank)), ""


def read_log_tail(paths: TrialPaths) -> str:
    """The last lines that the script printed, without what a terminal would obey and no database takes."""
    try:
        data = read_bounded(paths.log, MAX_LOG_BYTES)
    except (OSError, UnreadableError):
        return ""
    text = ORDERS.sub("", data[-4 * LOG_TAIL_CHARS :].decode(errors="replace"))
    return "".join(char for char in text if char.isprintable() or char in "\n\t\r")[-LOG_TAIL_CHARS:]


def copy_profiles(paths: TrialPaths, folder: Path) -> None:
    """Copies the profiles of a diagnosis, as far as there are any, in place of those of an earlier one.

    Raises:
        OSError: The folder, or a file in it, cannot be written.
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
    """The content of a plain file; a link, a pipe or a device in its place is neither followed nor waited for.

    Raises:
        OSError: It cannot be opened.
        UnreadableError: It is no plain file, or larger than that.
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
    """The value with only such text as every database and terminal takes: no half surrogates, no NUL."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
