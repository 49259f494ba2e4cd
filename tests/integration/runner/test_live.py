"""Several settings are measured in one process of the script: each is in force in its turn and gone afterwards, and
whatever cannot be switched, or fails, costs that process and nothing else."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import StartKind, TrialResult
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.live_runner import LiveRunner
from autotune.sandbox.tree_removal import remove_tree
from autotune.settings import OmpWaitPolicy, Precision
from autotune.units import MIB
from tests.integration.runner.ground import Ground, protection_of
from tests.integration.runner.study import Study, opened
from tests.integration.runner.test_tuner_death import start_tuner_in, wait_until_nothing_is_left


@pytest.fixture(scope="module", params=["either"])
def ground(request: pytest.FixtureRequest, are_layers_permitted: bool) -> Iterator[Ground]:
    """A user's project under the best protection of this system."""
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    home = os.environ.get("HOME", "/")
    yield Ground(root, protection_of(request.param, are_layers_permitted=are_layers_permitted))
    os.environ["HOME"] = home
    remove_tree(root)


@pytest.fixture(scope="module")
def study(ground: Ground) -> Study:
    return opened(ground, "switches.py")


@pytest.fixture
def live(study: Study) -> Iterator[LiveRunner]:
    runner = LiveRunner(ForkRunner(study.cold, study.facts))
    yield runner
    runner.close()


def measured(runner: LiveRunner, study: Study, *arguments: str, serves: bool = True, **changes: Any) -> TrialResult:
    settings = replace(study.script_settings, **changes)
    run = runner.start(replace(study.job(*arguments, settings=settings), serves=serves))
    while not run.poll():
        time.sleep(0.01)
    return run.result()


def sees(result: TrialResult) -> str:
    """What the script saw last."""
    return [line for line in result.log_tail.splitlines() if line.startswith("sees")][-1]


CHANGES: list[dict[str, Any]] = [
    {"num_workers": 2},
    {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 4},
    {"precision": Precision.BF16},
    {"intra_op_threads": 1},
    {"channels_last": True},
    {"batch_size": 4, "grad_accum_steps": 4},
    {"batch_size": 8, "grad_accum_steps": 2, "precision": Precision.BF16, "channels_last": True, "num_workers": 1},
]


def test_each_setting_is_in_force_in_its_turn_and_gone_afterwards(study: Study, live: LiveRunner) -> None:
    first = measured(live, study)
    assert first.start is not StartKind.LIVE and first.outcome is Outcome.OK, first.why
    for change in CHANGES:
        result = measured(live, study, **change)
        assert result.outcome is Outcome.OK, f"{change}: {result.why} {result.log_tail}"
        assert result.start is StartKind.LIVE, result.start_reason
        observed = result.ranks[0].observed
        assert {name: observed[name] for name in change} == change
        assert result.measurement is not None and result.durations_s["switch"] > 0
        last = measured(live, study)
        assert last.start is StartKind.LIVE and last.outcome is Outcome.OK, f"after {change}: {last.why}"
        assert sees(last) == sees(first), change
        assert dict(last.ranks[0].observed) == dict(first.ranks[0].observed), change


def test_no_batch_of_another_size_meets_the_scripts_own_format(study: Study, live: LiveRunner) -> None:
    measured(live, study)
    result = measured(live, study, batch_size=4, grad_accum_steps=4, precision=Precision.BF16, channels_last=True)
    assert result.start is StartKind.LIVE and result.outcome is Outcome.OK, result.why
    seen = [line.split("(")[0].split()[1:4] for line in result.log_tail.splitlines() if line.startswith("sees 4 ")]
    assert seen and all(each == ["4", "True", "True"] for each in seen), result.log_tail


def test_weights_and_the_optimizers_state_always_have_the_same_layout(study: Study, live: LiveRunner) -> None:
    for change in ({}, {"channels_last": True}, {"channels_last": True, "num_workers": 1}, {}):
        result = measured(live, study, "has_fused_kernels", **change)
        assert result.outcome is Outcome.OK, f"{change}: {result.why}"


def test_a_setting_that_is_read_at_the_start_gets_a_new_process_and_says_why(study: Study, live: LiveRunner) -> None:
    measured(live, study)
    passive = study.script_settings.omp_wait_policy is OmpWaitPolicy.PASSIVE
    other = OmpWaitPolicy.DEFAULT if passive else OmpWaitPolicy.PASSIVE
    settings = replace(study.script_settings, omp_wait_policy=other)
    job = replace(study.job(settings=settings), serves=True, environment=(("OMP_WAIT_POLICY", "PASSIVE"),))
    run = live.start(job)
    while not run.poll():
        time.sleep(0.01)
    result = run.result()
    assert result.start is not StartKind.LIVE
    assert result.start_reason.startswith("omp_wait_policy: ")


def test_loaders_side_by_side_are_switched_together(ground: Ground) -> None:
    study = opened(ground, "sides.py")
    runner = LiveRunner(ForkRunner(study.cold, study.facts))
    try:
        for turn, num_workers in enumerate((0, 2, 1, 0)):
            result = measured(runner, study, num_workers=num_workers)
            assert result.outcome is Outcome.OK, f"{result.why} {result.log_tail}"
            assert (result.start is StartKind.LIVE) == (turn > 0), result.start_reason
            assert sees(result) == f"sees {num_workers} {num_workers}"
    finally:
        runner.close()


def test_a_final_gets_a_new_process_and_leaves_none(ground: Ground, study: Study, live: LiveRunner) -> None:
    assert measured(live, study).outcome is Outcome.OK
    result = measured(live, study, serves=False)
    assert result.start is not StartKind.LIVE
    live.close()
    assert ground.processes_left() == [] and ground.folders_left() == []


def test_a_setting_that_fails_costs_its_process_and_nothing_else(study: Study, live: LiveRunner) -> None:
    assert measured(live, study, "fails_in_bf16").outcome is Outcome.OK
    failed = measured(live, study, "fails_in_bf16", precision=Precision.BF16)
    assert failed.start is StartKind.LIVE and failed.outcome is Outcome.CRASHED
    assert "no such number" in failed.reason
    after = measured(live, study, "fails_in_bf16", num_workers=1)
    assert after.start is not StartKind.LIVE and after.outcome is Outcome.OK, after.why


def test_a_script_that_ends_between_two_requests_is_measured_in_a_new_process(study: Study, live: LiveRunner) -> None:
    results = [measured(live, study, "ends", num_workers=number % 2) for number in range(6)]
    assert {result.outcome for result in results} == {Outcome.OK}
    afresh = [result for result in results[1:] if result.start is not StartKind.LIVE]
    assert all("the script ended" in result.start_reason for result in afresh)


@pytest.mark.parametrize("how", ["reads_ahead", "wraps"])
def test_a_process_whose_settings_cannot_be_taken_back_ends(study: Study, live: LiveRunner, how: str) -> None:
    results = [measured(live, study, how, num_workers=number) for number in (0, 1)]
    assert [result.outcome for result in results] == [Outcome.OK] * 2, results[0].why
    assert all(result.start is not StartKind.LIVE for result in results)
    said = {"wraps": "settings stay in force, since", "reads_ahead": "a thread of the script's own reads its loader"}
    why = results[1].start_reason
    assert why.startswith(f"the process before ended after its measurement: {said[how]}"), why


def test_a_function_that_is_only_watched_may_be_wrapped_by_a_library(study: Study, live: LiveRunner) -> None:
    """No process of a Lightning script on a GPU went on with other settings."""
    results = [measured(live, study, "replaces_compile", num_workers=number) for number in (0, 1)]
    assert [result.outcome for result in results] == [Outcome.OK] * 2, results[0].why
    assert results[1].start is StartKind.LIVE, results[1].start_reason


def test_a_killed_tuner_leaves_no_waiting_process(ground: Ground) -> None:
    tuner = start_tuner_in(ground, "live", "switches.py")
    ground.wait_for_line(b"sees")
    deadline = time.monotonic() + 60
    while not list(ground.workspace.folder.glob("trials/*/windows/1/progress.bin")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    wait_until_nothing_is_left(ground)


def test_the_memory_of_a_measurement_is_its_own(study: Study, live: LiveRunner) -> None:
    measured(live, study)
    larger = measured(live, study, num_workers=2)
    smaller = measured(live, study)
    assert larger.peak_memory_bytes and smaller.peak_memory_bytes
    assert smaller.peak_memory_bytes < larger.peak_memory_bytes


def test_the_memory_of_the_first_step_after_a_switch_is_no_part_of_the_measurement(
    study: Study, live: LiveRunner
) -> None:
    own = measured(live, study, "swells")
    switched = measured(live, study, "swells", batch_size=4, grad_accum_steps=4)
    assert switched.start is StartKind.LIVE and switched.outcome is Outcome.OK, switched.why
    assert own.peak_memory_bytes and switched.peak_memory_bytes
    assert switched.peak_memory_bytes < own.peak_memory_bytes + 100 * MIB
