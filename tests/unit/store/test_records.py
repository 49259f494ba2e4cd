from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from autotune.errors import StoreError
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.settings import Settings
from autotune.spec import SearchSpec
from autotune.store import records
from autotune.store.records import Owner, StudyRecord
from autotune.store.rows import (
    final_from_row,
    final_to_row,
    moment_from_text,
    moment_to_text,
    study_from_row,
    study_to_row,
    to_json,
    trial_from_row,
    trial_to_row,
)
from tests.unit.runner.samples import rank

NOW = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
SPEC = SearchSpec(
    command=("python", "t.py", "--token", "abc"), script="/t.py", cwd="/", study="s", storage="mysql://a:b@c/d"
)
STUDY = StudyRecord(name="s", spec=SPEC, fingerprint={"E": 64}, created_at=NOW)
RESULT = TrialResult(outcome=Outcome.CRASHED, reason="It raised.")
TRIAL = TrialRecord(
    number=3,
    settings=Settings(num_workers=2, knobs=(("storage", "jpeg"),)),
    stage="plan",
    result=RESULT,
    started_at=NOW,
    finished_at=NOW + timedelta(seconds=9),
    optuna_told=False,
)


def test_a_study_survives_its_row_with_the_storage_of_the_reader() -> None:
    row = study_to_row(STUDY)
    assert "mysql" not in str(row) and "abc" not in str(row)
    spec = replace(SPEC, storage="sqlite:////x.db", command=("python", "t.py", "--token", "***"))
    assert study_from_row(row, "sqlite:////x.db") == replace(STUDY, spec=spec)


def test_a_trial_survives_its_row() -> None:
    assert trial_from_row(trial_to_row(TRIAL)) == TRIAL


def test_a_final_survives_its_row() -> None:
    final = FinalRecord(round=1, number=3, settings=Settings(batch_size=64), result=RESULT, finished_at=NOW)
    assert final_from_row(final_to_row(final)) == final


def test_results_stored_with_the_longest_step_of_a_block_are_read_without_it() -> None:
    result = replace(RESULT, ranks=(rank(),))
    trial = replace(TRIAL, result=result)
    final = FinalRecord(round=1, number=3, settings=Settings(batch_size=64), result=result, finished_at=NOW)
    rows = trial_to_row(trial), final_to_row(final)
    former = [
        {**row, "result": row["result"].replace('"num_saves"', '"longest_step_s": 0.3, "num_saves"')} for row in rows
    ]
    assert all("longest_step_s" in row["result"] for row in former)
    assert (trial_from_row(former[0]), final_from_row(former[1])) == (trial, final)


@pytest.mark.parametrize(
    "damage",
    [
        {"settings": "{"},
        {"settings": '{"num_wokers": 2}'},
        {"settings": '{"num_workers": -2}'},
        {"result": "[]"},
        {"result": '{"outcome": "ok"}'},
        {"finished_at": "yesterday"},
        {"attempt": 0},
    ],
)
def test_a_row_that_cannot_be_read_is_named(damage: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="stored trial 3 cannot be read"):
        trial_from_row({**trial_to_row(TRIAL), **damage})


def test_json_is_ascii_and_has_no_number_that_cannot_be_read_back() -> None:
    assert to_json({"a": "\N{SNOWMAN}\udcff\x00"}).isascii()
    with pytest.raises(ValueError, match="JSON"):
        to_json({"rate": float("nan")})


def test_moments_sort_as_text_and_come_back_in_utc() -> None:
    # The hour that a clock in Berlin shows twice.
    moments = [NOW + timedelta(minutes=20 * i) for i in range(4)]
    local = [moment.astimezone(timezone(timedelta(hours=2 if i < 2 else 1))) for i, moment in enumerate(moments)]
    texts = [moment_to_text(moment) for moment in local]
    assert texts == sorted(texts)
    assert [moment_from_text(text) for text in texts] == moments


@pytest.mark.parametrize(
    "change",
    [{"started_at": datetime(2026, 1, 1)}, {"finished_at": datetime(2026, 1, 1)}, {"number": -1}, {"attempt": 0}],
)
def test_an_impossible_trial_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no time zone|at least 0"):
        replace(TRIAL, **change)


def test_an_impossible_study_or_final_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        replace(STUDY, created_at=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="name"):
        replace(STUDY, name="")
    with pytest.raises(ValueError, match="at least 0"):
        FinalRecord(round=-1, number=0, settings=Settings(), result=RESULT, finished_at=NOW)


needs_proc = pytest.mark.skipif(not Owner.this_process().boot_id, reason="this system does not tell processes apart")


@needs_proc
def test_this_process_is_alive() -> None:
    owner = Owner.this_process()
    assert owner.pid == os.getpid()
    assert owner.is_alive_here() is True


@needs_proc
def test_a_process_with_our_number_and_another_start_is_not_the_same() -> None:
    owner = Owner.this_process()
    assert owner.start_ticks is not None
    assert replace(owner, start_ticks=owner.start_ticks - 1).is_alive_here() is False


@needs_proc
def test_a_number_without_a_process_is_dead() -> None:
    assert replace(Owner.this_process(), pid=2**22 + 7).is_alive_here() is False  # above the kernel's highest


@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"boot_id": "another"}, {"boot_id": ""}, {"start_ticks": None}]
)
def test_of_another_host_boot_or_container_nothing_is_known(change: dict[str, object]) -> None:
    assert replace(Owner.this_process(), **change).is_alive_here() is None


@needs_proc
def test_a_process_that_the_kernel_hides_is_neither_alive_nor_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner.this_process()
    monkeypatch.setattr(records, "process_start_ticks", lambda pid: None)
    assert owner.is_alive_here() is None


def test_a_trial_of_an_earlier_version_with_codes_among_a_ranks_notes_is_read() -> None:
    row = trial_to_row(replace(TRIAL, result=replace(RESULT, ranks=(rank(),))))
    result = json.loads(row["result"])
    del result["parity_gap"], result["ranks"][0]["is_past_its_epoch"], result["ranks"][0]["empty_loaders"]
    result["ranks"][0]["notes"] = ["past_its_epoch", "empty_loader:train.py:9"]
    read = trial_from_row({**row, "result": json.dumps(result)})
    assert (read.number, read.result.ranks[0].status) == (TRIAL.number, rank().status)
