"""However a trial is started, cold, forked or prepared: it trains alike, in a process that is alike."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.model.result import TrialResult
from autotune.protocol.environment import FORKABLE
from autotune.protocol.protection import Protection
from autotune.runner import reports
from autotune.sandbox.tree_removal import remove_tree
from tests.integration.runner.ground import Ground, protection_of
from tests.integration.runner.study import opened, run

STARTS = ("cold", "forked", "prepared")
LONG_LOG_CHARS = 1 << 16
OBJECTS_RATIO = 0.01
"""Objects that the collector walks through by the way of the start, relative to all."""


@pytest.fixture(
    scope="module",
    params=[pytest.param((), id="alone"), pytest.param(("worker",), id="worker", marks=pytest.mark.slow)],
)
def arguments(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Of the script."""
    return tuple(request.param)


@pytest.fixture(scope="module", params=["either", pytest.param("landlock", marks=pytest.mark.slow)])
def protection(request: pytest.FixtureRequest, are_layers_permitted: bool) -> Protection:
    """What keeps the user's files."""
    return protection_of(request.param, are_layers_permitted=are_layers_permitted)


@pytest.fixture(scope="module")
def trials(arguments: tuple[str, ...], protection: Protection) -> Iterator[dict[str, TrialResult]]:
    """One script under its own settings, started in each way; it says what it sees."""
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "LOG_TAIL_CHARS", LONG_LOG_CHARS)
        patch.setenv("HOME", os.environ.get("HOME", "/"))
        study = opened(Ground(root, protection), "draws.py")
        job = study.job(*arguments)
        with study.runner(least_preparation_s=math.inf) as forked, study.runner() as prepared:
            runners = zip(STARTS, (study.cold, forked, prepared), strict=True)
            yield {start: run(runner, job) for start, runner in runners}
    remove_tree(root)


def seen(result: TrialResult, when: str) -> dict[str, Any]:
    """What the script said that it saw then."""
    lines = [json.loads(line) for line in result.log_tail.splitlines() if line.startswith("{")]
    (found,) = [line for line in lines if line["when"] == when]
    return dict(found)


def test_losses_are_the_same_bit_for_bit(trials: dict[str, TrialResult], arguments: tuple[str, ...]) -> None:
    assert [trials[start].start for start in STARTS] == list(STARTS), trials["prepared"].start_reason
    losses = [[loss.hex() for loss in trials[start].ranks[0].first_losses] for start in STARTS]
    assert len(losses[0]) > 1
    assert losses[1] == losses[0] and losses[2] == losses[0]
    (digest,) = {trials[start].ranks[0].start_digest for start in STARTS}
    drops = "worker" in arguments  # Then losses follow from more than what is digested.
    assert (digest is None) == drops


def test_what_a_scripts_speed_depends_on_is_the_same_where_it_trains(trials: dict[str, TrialResult]) -> None:
    cold, *others = [seen(trials[start], "trains") for start in STARTS]
    num_objects = cold["collector"].pop("num_objects")
    assert cold["num_denormals"] > 0 and len(cold["tasks"]) >= cold["torch"]["threads"][0]
    for other in others:
        assert other["collector"].pop("num_objects") == pytest.approx(num_objects, rel=OBJECTS_RATIO)
        assert other == cold


def test_a_beginning_sees_what_it_sees_in_a_fresh_interpreter(trials: dict[str, TrialResult]) -> None:
    """But for modules that are imported already, a variable that one of them sets, and the way to ask for devices."""
    cold, *others = [seen(trials[start], "begins") for start in STARTS]
    cold["collector"].pop("num_objects")
    for start, other in zip(STARTS[1:], others, strict=True):
        assert other["collector"].pop("num_objects") > 0
        extra = {name: other["environment"].pop(name) for name in other["environment"].keys() - cold["environment"]}
        assert set(extra) <= {"TORCHINDUCTOR_CACHE_DIR", *(FORKABLE if start == "prepared" else ())}
        assert other == cold
