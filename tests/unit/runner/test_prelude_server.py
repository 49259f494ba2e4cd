"""How far a trial that goes on from the script's beginning is trusted, and which are not tried."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult, RankStatus, StartKind, TrialResult
from autotune.protocol.job import Mode, TrialJob
from autotune.runner.prelude_server import Preparation, Trust, difference, why_unprepared
from autotune.settings import Settings
from tests.jobs import job_of
from tests.unit.facts import script_facts

NATURAL = Settings(batch_size=64)
FASTER = replace(NATURAL, num_workers=4)
FACTS = script_facts(first_loss=2.3)


def job(settings: Settings = NATURAL, **changes: Any) -> TrialJob:
    values: dict[str, Any] = {
        "mode": Mode.TRIAL,
        "command": ("python", "train.py"),
        "cwd": "/",
        "settings": settings,
        "script_settings": NATURAL,
        "facts": FACTS,
        "cap_bytes": 1,
        "window": WindowRule(half_width_ratio=0.05),
        "start_limit_s": 1.0,
        "total_limit_s": 1.0,
    }
    return job_of(**{**values, **changes})


def ended(start: str, outcome: Outcome, *losses: float) -> TrialResult:
    rank = RankResult(rank=0, world_size=1, status=RankStatus.ENDED, first_losses=losses)
    return TrialResult(outcome=outcome, start=StartKind(start), ranks=(rank,))


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.INTERRUPTED])
def test_settings_that_failed_are_tried_another_way_and_no_others(outcome: Outcome) -> None:
    trust = Trust(FACTS)
    trust.judged(job(FASTER), ended("prepared", outcome))
    assert trust.why_not(FASTER) and not trust.why_not(NATURAL)


@pytest.mark.parametrize(
    ("outcome", "is_trusted"), [(Outcome.CRASHED, True), (Outcome.INTERRUPTED, True), (Outcome.OVER_CAP, False)]
)
def test_nothing_is_prepared_any_more_where_only_the_prepared_trial_failed(outcome: Outcome, is_trusted: bool) -> None:
    trust = Trust(FACTS)
    trust.judged(job(FASTER), ended("prepared", Outcome.TIMED_OUT))
    trust.judged(job(FASTER), ended("forked", outcome))
    assert (trust.why_not(NATURAL) == "") is is_trusted


@pytest.mark.parametrize(
    ("settings", "loss", "is_trusted"), [(NATURAL, 2.30001, True), (NATURAL, 2.31, False), (FASTER, 2.31, True)]
)
def test_the_first_loss_under_the_scripts_own_settings_is_that_of_its_probe(
    settings: Settings, loss: float, is_trusted: bool
) -> None:
    trust = Trust(FACTS)
    trust.judged(job(settings), ended("prepared", Outcome.INVALID, loss))
    assert (trust.why_not(settings) == "") is is_trusted


def test_settings_given_as_arguments_are_read_too_early() -> None:
    assert "num_workers" in why_unprepared(job(FASTER, mapped=("num_workers",)), FACTS)
    assert not why_unprepared(job(FASTER, mapped=("batch_size",)), FACTS)
    assert not why_unprepared(job(NATURAL, mapped=("num_workers",)), FACTS)
    own = replace(NATURAL, knobs=(("storage", "lmdb"),))
    assert "storage" in why_unprepared(job(own, mapped=("storage",)), FACTS)


def test_a_script_that_starts_its_processes_by_itself_has_no_beginning_to_share() -> None:
    assert "2 processes" in why_unprepared(job(), replace(FACTS, world_size=2))


def test_a_trial_is_told_what_differs_and_what_it_must_not_have() -> None:
    assert difference({"A": "1", "B": "2", "C": "3"}, {"A": "1", "B": "4", "D": "5"}) == {"B": "4", "C": None, "D": "5"}


class Cold:
    """Starts nothing."""

    workspace = None

    def start_with(self, *_: Any) -> Any:
        return SimpleNamespace(poll=lambda: False)


@pytest.mark.parametrize("said", [b"hello", b"[1]", b'{"reason": ""}', b'{"reason": "", "prepared_s": "soon"}'])
def test_a_beginning_that_says_something_else_is_lost_and_does_not_end_the_search(tmp_path: Path, said: bytes) -> None:
    server: Any = SimpleNamespace(pid=1, folder=tmp_path)
    cold: Any = Cold()
    preparation = Preparation(cold, server, job())
    preparation._listener.bind(str(tmp_path / "seam"))
    preparation._listener.listen(1)
    with preparation._listener, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as script:
        script.connect(str(tmp_path / "seam"))
        script.send(said)
        assert preparation.poll()
        assert preparation._connection is not None
        preparation._connection.close()
    assert "its beginning was lost" in preparation.reason
