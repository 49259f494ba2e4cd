"""A trial whose script fails ends with its report, however it was started: nobody waits for what its exit waits for."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.model.outcome import Outcome
from autotune.model.result import RankStatus, TrialResult
from autotune.sandbox.tree_removal import remove_tree
from tests.integration.runner.ground import Ground, protection_of
from tests.integration.runner.study import Study, opened, run
from tests.jobs import changed

LONG = WindowRule(half_width_ratio=0.01, min_window_s=60.0, max_window_s=60.0)


@pytest.fixture(scope="module")
def study(are_layers_permitted: bool) -> Iterator[Study]:
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    home = os.environ.get("HOME", "/")
    yield opened(Ground(root, protection_of("either", are_layers_permitted=are_layers_permitted)), "crashes.py")
    os.environ["HOME"] = home
    remove_tree(root)


def crashed(study: Study, start: str, how: str) -> TrialResult:
    """The result of a trial that fails so, started in one of three ways."""
    job = changed(study.job(how), window=LONG)
    if start == "cold":
        return run(study.cold, job)
    with study.runner(least_preparation_s=0.0 if start == "prepared" else math.inf) as runner:
        return run(runner, job)


@pytest.mark.parametrize("start", ["cold", "forked", "prepared"])
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("step", "ValueError: too many steps"),
        ("forward", "AssertionError: too many steps"),
        ("worker", "LookupError: Caught LookupError in DataLoader worker process 0."),
    ],
)
def test_a_crashed_trial_ends_with_its_traceback(study: Study, start: str, how: str, reason: str) -> None:
    result = crashed(study, start, how)
    assert result.outcome is Outcome.CRASHED and result.start == start
    assert result.reason.startswith(reason[:40])
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.log_tail
    assert "waits for its workers" not in result.log_tail
    assert study.ground.processes_left() == []


def test_a_thread_of_the_scripts_own_does_not_keep_a_crashed_trial_alive(study: Study) -> None:
    result = crashed(study, "cold", "thread")
    assert result.outcome is Outcome.CRASHED and result.reason == "ValueError: too many steps"


@pytest.mark.parametrize("start", ["cold", "forked"])
@pytest.mark.parametrize(("how", "status"), [("exit", RankStatus.ENDED), ("own hook", RankStatus.RAISED)])
def test_a_trial_that_has_said_its_last_word_is_not_waited_for(
    study: Study, start: str, how: str, status: RankStatus
) -> None:
    result = crashed(study, start, how)
    assert result.outcome.is_failed and result.outcome is not Outcome.TIMED_OUT
    assert [rank.status for rank in result.ranks] == [status]
    assert result.exit_code is None, "it was ended from outside"
