"""The state of a search, folded from its events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from autotune.service.pages.live_job import LiveJob, tell

from ...service.told import RUNNING, SEARCH, STARTED, trial

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def folded(*events):
    job = LiveJob()
    for event in events:
        tell(job, {"at": NOW.isoformat(), **event})
    return job


def test_a_search_is_told_by_its_events():
    job = folded(*SEARCH, RUNNING)
    assert job.best.number == 1 and job.ratio == pytest.approx(1.86) and job.baseline_rate == 1000.0
    assert [trial.number for trial in job.shown] == [5, 4, 3, 2, 1, 0]
    assert [trial.kind for trial in job.ended] == ["ok", "ok", "bound", "failed", ""]
    assert job.trials[5].words == "running" and job.doing == "Measuring trial 5." and job.is_measuring
    assert job.trials[4].words == "of_a_newer_release"
    assert job.own_settings["num_workers"] == 0
    assert [words for _, words in job.legend] == ["measured", "too slow (upper bound)", "failed"]


def test_a_search_without_events_has_nothing_to_show():
    job = folded()
    assert job.best is None and job.ratio is None and job.chart() is None and not job.is_measuring
    assert job.spent_s(NOW, is_running=True) is None


def test_a_failed_baseline_leaves_the_ratio_open():
    job = folded(STARTED, *trial(0, outcome="crashed"), *trial(1, rate=100.0))
    assert job.best.number == 1 and job.ratio is None
    assert job.chart() is not None


def test_time_goes_on_only_during_a_run():
    job = folded(STARTED)
    later = NOW + timedelta(seconds=60)
    assert job.spent_s(later, is_running=True) == pytest.approx(70.0), "earlier runs count"
    assert job.spent_s(later, is_running=False) == pytest.approx(10.0)


def test_a_second_run_of_a_search_keeps_the_trials_and_drops_old_notices():
    job = folded(*SEARCH, {"event": "notice", "message": "ending"}, {"event": "result"}, STARTED)
    assert len(job.trials) == 5 and job.notices == [] and job.result == {}


def test_notices_are_on_one_line_without_control_characters():
    job = folded({"event": "notice", "message": "a\n\x1b[31mb"})
    assert job.notices == ["a [31mb"]


def test_the_finals_are_told_round_by_round():
    job = folded(
        *SEARCH,
        {"event": "finals_started", "numbers": [0, 1], "num_rounds": 2},
        {"event": "final_started", "round": 0, "number": 1},
        {"event": "final_finished", "round": 0, "number": 1, "outcome": "ok", "samples_per_second": 1800.0},
    )
    assert job.doing == "Finals, round 1: trial 1." and len(job.finals) == 1
