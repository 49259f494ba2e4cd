"""The one file that a process of a trial leaves behind, and its end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from autotune.model.job import TrialPaths
from autotune.model.result import RankResult
from autotune.plain import to_plain


def identity() -> tuple[int, int]:
    """(rank, world size) of this process, as torch.distributed or the launcher's environment says."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1
    return (rank, world_size) if 0 <= rank < world_size else (0, 1)


def write(paths: TrialPaths, result: RankResult, *, replace: bool = True) -> None:
    """Writes the report aside, then renames it: a reader sees all of it or nothing.

    Args:
        paths: The trial's files.
        result: The report.
        replace: Whether a report of the same rank that is already there gives way.
    """
    target = paths.result(result.rank)
    if target.exists() and not replace:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(f"{target}.{os.getpid()}.part")
    aside.write_text(json.dumps(to_plain(result)))
    aside.replace(target)


def end_process() -> None:
    """Ends this process here, without the script's own end: no last checkpoint, no evaluation, nothing to hang in."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(0)
