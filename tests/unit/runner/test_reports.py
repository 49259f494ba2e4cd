"""The files in a trial's folder, read without trust."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from autotune.model.gauges import TrialPhase
from autotune.protocol.paths import PROFILE_FILES, TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.runner.reports import (
    LOG_TAIL_CHARS,
    MAX_RANKS,
    Progress,
    UnreadableError,
    copy_profiles,
    read_bounded,
    read_log_tail,
    read_progress,
    read_ranks,
)
from autotune.trial.meter.rank_sync import Agreement
from autotune.trial.meter.rank_sync import Progress as Shared


@pytest.fixture
def paths(tmp_path: Path) -> TrialPaths:
    (tmp_path / "results").mkdir()
    return TrialPaths(tmp_path)


def put(paths: TrialPaths, rank: int = 0, **changes: Any) -> None:
    values = {"rank": rank, "world_size": 1, "status": "measured", **changes}
    paths.result(rank).write_text(json.dumps(values))


def test_reports_come_in_order_of_rank(paths: TrialPaths) -> None:
    for rank in (10, 2, 0):
        put(paths, rank, world_size=11)
    ranks, unreadable = read_ranks(paths)
    assert [rank.rank for rank in ranks] == [0, 2, 10]
    assert unreadable == ""


def test_what_is_no_report_is_not_looked_at(paths: TrialPaths) -> None:
    put(paths)
    (paths.results / "rank-0.json.77.part").write_text("{")
    (paths.results / "notes.json").write_text("{")
    assert len(read_ranks(paths)[0]) == 1


def test_a_missing_folder_holds_no_report(tmp_path: Path) -> None:
    assert read_ranks(TrialPaths(tmp_path / "gone")) == ((), "")


def test_a_folder_that_cannot_be_read_is_an_unreadable_report(
    paths: TrialPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("autotune.runner.reports.os.scandir", refused)
    ranks, unreadable = read_ranks(paths)
    assert ranks == () and "Permission denied" in unreadable


def test_one_bad_report_spoils_them_all(paths: TrialPaths) -> None:
    put(paths, 0, world_size=2)
    paths.result(1).write_text("{")
    ranks, unreadable = read_ranks(paths)
    assert ranks == ()
    assert "rank-1.json" in unreadable


def test_a_report_under_the_name_of_another_rank_is_refused(paths: TrialPaths) -> None:
    put(paths, 0, world_size=4)
    paths.result(0).rename(paths.result(3))
    assert "rank-3.json is the report of rank 0" in read_ranks(paths)[1]


def test_more_reports_than_any_trial_has_are_refused(paths: TrialPaths) -> None:
    for number in range(MAX_RANKS + 1):
        (paths.results / f"rank-{number}.json").touch()
    assert str(MAX_RANKS) in read_ranks(paths)[1]


def test_text_is_made_fit_for_databases(paths: TrialPaths) -> None:
    put(paths, notes=["a\0b", "\ud800"], observed={"k\0": "v"})
    rank = read_ranks(paths)[0][0]
    assert rank.notes == ("ab", "?")
    assert rank.observed == {"k": "v"}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_steps": -1},
        {"num_steps": 1 << 63},
        {"held_host_bytes": 1 << 51},
        {"durations_s": {"window": -1.0}},
        {"durations_s": {"window": 1e300}},
        {"compute_samples_per_second": 0.0},
        {"rank": 1},
        {"world_size": 0},
        {"error": {"kind": "E", "message": "m", "is_out_of_memory": True, "requested_bytes": -1}},
    ],
)
def test_figures_that_cannot_be_are_refused(paths: TrialPaths, changes: dict[str, Any]) -> None:
    put(paths, **changes)
    assert read_ranks(paths)[0] == ()


def test_progress_is_read_from_its_slots(paths: TrialPaths) -> None:
    paths.progress.write_bytes(struct.pack("<5q", 12, 0, 0, 0, 0))
    assert read_progress(paths) == Progress(num_steps=12, in_window=False, phase=TrialPhase.WARM_UP)
    paths.progress.write_bytes(struct.pack("<5q", 12, 1, 2, 3, 0))
    assert read_progress(paths) == Progress(num_steps=12, in_window=True, phase=TrialPhase.WINDOW)
    paths.progress.write_bytes(struct.pack("<5q", 12, 1, 2, 3, 4))
    assert read_progress(paths) == Progress(num_steps=12, in_window=False, phase=TrialPhase.ENDING)


def test_the_slots_are_those_that_a_trial_writes(paths: TrialPaths) -> None:
    agreement = Agreement(Shared(paths.progress), 0, 1)
    assert read_progress(paths).phase is TrialPhase.STARTING
    agreement.done(3, num_samples=96.0, wait_s=0.25)
    found = read_progress(paths)
    assert (found.num_steps, found.num_samples, found.waited_s) == (3, 96, 0.25)
    seen = [found.phase]
    for mark in (Mark.COMPUTE, Mark.OPEN, Mark.WINDOW, Mark.STOP):
        agreement.reached(mark, wanted=True, num_steps=4, since=3)
        seen.append(read_progress(paths).phase)
    assert seen == [
        TrialPhase.WARM_UP,
        TrialPhase.COMPUTE,
        TrialPhase.RAMP,
        TrialPhase.WINDOW,
        TrialPhase.ENDING,
    ]


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 39, b"x" * 100_000])
def test_progress_that_is_none_means_that_nothing_was_done(paths: TrialPaths, data: bytes) -> None:
    paths.progress.write_bytes(data)
    assert read_progress(paths) == Progress()


def test_the_end_of_the_log_is_shown_without_nul(paths: TrialPaths) -> None:
    paths.log.write_bytes(b"x" * 20_000 + b"\0\xff last line")
    tail = read_log_tail(paths)
    assert tail.endswith("� last line") and "\0" not in tail
    assert len(tail) == LOG_TAIL_CHARS


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("plain")
    assert read_bounded(tmp_path / "plain", 5) == b"plain"
    with pytest.raises(UnreadableError, match="larger"):
        read_bounded(tmp_path / "plain", 4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableError, match="no plain file"):
        read_bounded(tmp_path / "pipe", 100)
    with pytest.raises(UnreadableError, match="no plain file"):
        read_bounded(tmp_path, 100)
    (tmp_path / "link").symlink_to("plain")
    with pytest.raises(OSError, match="link"):
        read_bounded(tmp_path / "link", 100)


def test_profiles_are_copied_as_far_as_there_are_any(paths: TrialPaths, tmp_path: Path) -> None:
    paths.profiles.mkdir()
    (paths.profiles / PROFILE_FILES[0]).write_text("{}")
    (paths.profiles / PROFILE_FILES[1]).symlink_to("/etc/hostname")
    (paths.profiles / "others").write_text("x")
    with pytest.raises(OSError, match=r"functions\.prof"):
        copy_profiles(paths, tmp_path / "out" / "deep")
    assert [path.name for path in (tmp_path / "out" / "deep").iterdir()] == [PROFILE_FILES[0]]


def test_a_profile_of_an_earlier_diagnosis_does_not_stay_where_there_is_no_new_one(
    paths: TrialPaths, tmp_path: Path
) -> None:
    paths.profiles.mkdir()
    (paths.profiles / PROFILE_FILES[0]).write_text("new")
    for name in (*PROFILE_FILES, "mine"):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text("old")
    copy_profiles(paths, tmp_path / "out")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {
        PROFILE_FILES[0]: "new",
        "mine": "old",
    }


def test_without_profiles_no_folder_is_made(paths: TrialPaths, tmp_path: Path) -> None:
    copy_profiles(paths, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_a_terminal_would_obey_is_not_in_the_tail_of_a_log(paths: TrialPaths) -> None:
    paths.log.write_bytes(
        b"\x1b[35mTraceback\x1b[0m\x1b]0;title\x07\x1b]52;c;bHM=\x1b\\ \xc2\x9b31m\x08 (last)\r\n\tline\n"
    )
    tail = read_log_tail(paths)
    assert tail.startswith("Traceback") and tail.endswith("(last)\r\n\tline\n")
    assert not any(char in tail for char in "\x1b\x07\x08\x9b")
