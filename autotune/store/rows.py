"""Turns records into rows of our tables and back; `autotune.protocol.codec` checks every value read from JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import RowMapping

from autotune.errors import AutotuneError, StoreError
from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.trial_records import FinalRecord, TrialEnding, TrialRecord
from autotune.protocol.codec import from_plain, to_plain
from autotune.settings import Settings
from autotune.spec import SearchSpec
from autotune.store.records import StudyRecord
from autotune.store.secrets import allowed_environment, mask_plain, masked_command

NUM_FINALS = 256
"""Size of the cache of finals: more than any study has."""
FORMER_FIELD = "longest_step_s"
"""A field of blocks up to November 2026, which nothing read."""
T = TypeVar("T")


def spec_to_text(spec: SearchSpec) -> str:
    """A request of a user as stored, without secrets and without the storage."""
    return to_json(to_plain(replace(spec, command=masked_command(spec), storage="")))


def study_to_row(record: StudyRecord) -> dict[str, Any]:
    """Columns of a new study.

    The spec is stored without secrets: without the storage, known to every reader, and with masked secret arguments.
    """
    return {
        "name": record.name,
        "created_at": moment_to_text(record.created_at),
        "status": record.status,
        "spec": spec_to_text(record.spec),
        "fingerprint": to_json(record.fingerprint),
        "spent_s": record.spent_s,
        "result": None if record.result is None else result_to_json(record.result),
        **probe_to_row(
            facts=record.facts,
            script_settings=record.script_settings,
            refused=record.refused,
            memory_cap_bytes=record.memory_cap_bytes,
            layer_folder=record.layer_folder,
        ),
    }


def probe_to_row(
    *,
    facts: ScriptFacts | None,
    script_settings: Settings | None,
    refused: tuple[tuple[str, str], ...],
    memory_cap_bytes: int | None,
    layer_folder: str,
) -> dict[str, Any]:
    """Columns of a study filled by the probe."""
    return {
        "facts": None if facts is None else to_json(to_plain(facts)),
        "natural_settings": None if script_settings is None else to_json(script_settings.to_dict()),
        "refused": to_json([list(pair) for pair in refused]),
        "memory_cap_bytes": memory_cap_bytes,
        # As JSON, since a path need not be valid text.
        "layer_folder": to_json(layer_folder),
    }


def study_from_row(row: RowMapping, storage: str) -> StudyRecord:
    """The study of a row; `storage` is the URL of the database.

    Raises:
        StoreError: A column cannot be read.
    """
    with _readable(f"study {row['name']!r}"):
        facts, script_settings = _load_optional(row["facts"]), _load_optional(row["natural_settings"])
        return StudyRecord(
            name=_of_kind(str, row["name"]),
            spec=replace(from_plain(SearchSpec, json.loads(row["spec"])), storage=storage),
            fingerprint=_of_kind(dict, json.loads(row["fingerprint"])),
            created_at=moment_from_text(row["created_at"]),
            status=row["status"],
            memory_cap_bytes=row["memory_cap_bytes"],
            facts=None if facts is None else from_plain(ScriptFacts, facts),
            script_settings=None if script_settings is None else Settings.from_dict(script_settings),
            refused=tuple((str(name), str(reason)) for name, reason in json.loads(row["refused"])),
            layer_folder=_of_kind(str, json.loads(row["layer_folder"])),
            spent_s=float(row["spent_s"]),
            result=None if row["result"] is None else _of_kind(dict, json.loads(row["result"])),
        )


def trial_to_row(record: TrialRecord) -> dict[str, Any]:
    """Columns of a trial; output of the script is masked, and the environment is reduced to an allow-list."""
    return {
        "number": record.number,
        "stage": record.stage,
        "outcome": record.result.outcome.value,
        "attempt": record.attempt,
        "optuna_told": record.optuna_told,
        "started_at": moment_to_text(record.started_at),
        "finished_at": moment_to_text(record.finished_at),
        "settings": to_json(record.settings.to_dict()),
        "result": to_json(mask_plain(to_plain(record.result))),
        "environment": to_json(allowed_environment(record.environment)),
        "samples_per_second": _rate(record.result),
    }


def _rate(result: TrialResult) -> float | None:
    is_measured = result.outcome is Outcome.OK and result.measurement is not None
    return result.measurement.samples_per_second if is_measured and result.measurement is not None else None


def trial_from_row(row: RowMapping, *, with_ranks: bool = True) -> TrialRecord:
    """The trial of a row.

    Args:
        row: Of the database.
        with_ranks: Read the reports of all processes too: most of a result, and rarely needed.

    Raises:
        StoreError: A column cannot be read.
    """
    with _readable(f"trial {row['number']}"):
        return TrialRecord(
            number=row["number"],
            settings=Settings.from_dict(json.loads(row["settings"])),
            stage=row["stage"],
            result=_result(row["result"], with_ranks=with_ranks),
            started_at=moment_from_text(row["started_at"]),
            finished_at=moment_from_text(row["finished_at"]),
            environment=json.loads(row["environment"]),
            attempt=row["attempt"],
            optuna_told=bool(row["optuna_told"]),
        )


def ending_of(number: int, settings: str, stage: str, outcome: str, failure: str | None) -> TrialEnding:
    """The ending of a trial, from columns of the trial's row.

    Args:
        number: Number of the trial.
        settings: Settings as JSON.
        stage: Stage of the search.
        outcome: Name of the outcome.
        failure: Result of a failed trial as JSON; None for all other outcomes.

    Raises:
        StoreError: A column cannot be read.
    """
    with _readable(f"trial {number}"):
        return TrialEnding(
            number=number,
            settings=Settings.from_dict(json.loads(settings)),
            stage=stage,
            outcome=Outcome(outcome),
            failure=None if failure is None else _result(failure, with_ranks=False),
        )


def _result(text: str, *, with_ranks: bool) -> TrialResult:
    result = json.loads(text, object_hook=_without_former_field if f'"{FORMER_FIELD}"' in text else None)
    if not with_ranks and isinstance(result, dict):
        result.pop("ranks", None)
    return from_plain(TrialResult, result)


def _without_former_field(value: dict[str, Any]) -> dict[str, Any]:
    value.pop(FORMER_FIELD, None)
    return value


def final_to_row(record: FinalRecord) -> dict[str, Any]:
    """Columns of one run of the finals; output of the script is masked."""
    return {
        "round": record.round,
        "number": record.number,
        "finished_at": moment_to_text(record.finished_at),
        "settings": to_json(record.settings.to_dict()),
        "result": to_json(mask_plain(to_plain(record.result))),
    }


def final_from_row(row: RowMapping) -> FinalRecord:
    """The run of the finals of a row.

    Raises:
        StoreError: A column cannot be read.
    """
    with _readable(f"final {row['number']} of round {row['round']}"):
        return FinalRecord(
            round=row["round"],
            number=row["number"],
            settings=Settings.from_dict(json.loads(row["settings"])),
            result=_result_of_final(row["result"]),
            finished_at=moment_from_text(row["finished_at"]),
        )


@functools.lru_cache(maxsize=NUM_FINALS)
def _result_of_final(text: str) -> TrialResult:
    """The result, read once: the finals ask for all their runs again and again."""
    return _result(text, with_ranks=True)


def result_to_json(document: dict[str, Any]) -> str:
    """The document of a result as stored, with masked secrets."""
    return to_json(mask_plain(document))


def to_json(value: Any) -> str:
    """The plain value as ASCII text, safe in every database's character set.

    Raises:
        ValueError: The value holds infinity or not-a-number, and could not be read back.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def moment_to_text(moment: datetime) -> str:
    """The moment in UTC with microseconds: text with the order of time, equal on every database."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def moment_from_text(text: str) -> datetime:
    """The moment of a text from `moment_to_text`, in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _of_kind(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{type(value).__name__} where {kind.__name__} belongs")
    return value


def _load_optional(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        AutotuneError,
    ) as error:
        raise StoreError(
            f"The stored {what} cannot be read: {str(error).rstrip('.')}.",
            "Another release wrote it, or the database was edited.",
        ) from error
