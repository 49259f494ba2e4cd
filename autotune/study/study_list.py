"""Tells a stored study in one line of a list."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from autotune.errors import StoreError
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.study.status import is_final, overview_in, status_result


def list_entry(record: StudyRecord, repository: Repository, *, now: datetime) -> dict[str, Any]:
    """A study of `autotune studies list --json`.

    Args:
        record: The study.
        repository: Place of the study.
        now: The present moment.

    Raises:
        StoreError: The study cannot be read.
    """
    try:
        trials = overview_in(repository, record)
        status = status_result(record, trials)
    except StoreError as error:
        raise StoreError(f"Study {record.name!r}: {error.message}", error.hint) from error
    best = status.best.samples_per_second if status.best is not None else None
    own = status.baseline.samples_per_second if status.baseline is not None else None
    return {
        "study": record.name,
        "status": record.status,
        "is_live": bool(repository.live_owners(record.name, now=now)),
        "num_trials": trials.num_finished,
        "best_samples_per_second": best,
        "samples_unit": status.samples_unit,
        "speedup": status.speedup[0] if status.speedup is not None else None,
        "ratio_so_far": best / own if best and own and not is_final(record) else None,
        "age_s": max(0.0, (now - record.created_at).total_seconds()),
        "created_at": record.created_at.astimezone(UTC).isoformat(timespec="seconds"),
        "script": record.spec.script,
        "config": (record.result or {}).get("config"),
    }


def gain_text(entry: dict[str, Any]) -> str:
    """The gain of a study in the list: verified by finals, or so far and marked by `~`; `-` without a gain."""
    if entry["speedup"] is not None:
        return f"{entry['speedup']:.2f}x"
    return f"~{entry['ratio_so_far']:.2f}x" if entry["ratio_so_far"] is not None else "-"
