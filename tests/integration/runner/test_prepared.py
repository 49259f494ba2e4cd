"""A trial that goes on from the script's own beginning is a cold one that need not make it: what its script sees there,
what it leaves, what it computes under which settings; and what cannot be shared, and is forked from its imports."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.sandbox.tree_removal import remove_tree
from autotune.settings import Precision
from tests.integration.runner.ground import SLOWLY_REDIRECTED, Ground, digest, protection_of
from tests.integration.runner.study import Study, opened, run
from tests.integration.runner.test_tuner_death import start_tuner_in, wait_until_nothing_is_left

BEGINNING_S = 0.5
"""Of the script."""


@pytest.fixture(scope="module", params=["layers"])
def ground(request: pytest.FixtureRequest, are_layers_permitted: bool) -> Iterator[Ground]:
    """A user's project, under layers unless a test says otherwise."""
    protection = protection_of(request.param, are_layers_permitted=are_layers_permitted)
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    home = os.environ.get("HOME", "/")
    yield Ground(root, protection)
    os.environ["HOME"] = home
    remove_tree(root)


@pytest.fixture(scope="module")
def study(ground: Ground) -> Study:
    return opened(ground, "prepares.py")


def training(result: TrialResult) -> tuple[object, ...]:
    """What two trials under the same settings have in common."""
    return result.log_tail, result.ranks[0].first_losses, dict(result.ranks[0].observed)


@SLOWLY_REDIRECTED
def test_prepared_trials_are_what_cold_ones_are_under_each_settings(study: Study) -> None:
    other = replace(study.script_settings, num_workers=2, batch_size=16, grad_accum_steps=2, intra_op_threads=1)
    other = replace(other, precision=Precision.BF16)
    with study.runner() as runner:
        prepared = [
            run(runner, study.job(settings=settings))
            for settings in (study.script_settings, other, study.script_settings)
        ]
    cold = [run(study.cold, study.job(settings=settings)) for settings in (study.script_settings, other)]
    assert [result.start for result in prepared] == ["prepared"] * 3, prepared[0].start_reason
    assert training(prepared[0]) == training(prepared[2]) == training(cold[0])
    assert training(prepared[1]) == training(cold[1])
    in_force = prepared[1].ranks[0].observed
    asked: dict[str, object] = {"num_workers": 2, "batch_size": 16, "grad_accum_steps": 2}
    asked |= {"intra_op_threads": 1, "precision": "bf16"}
    assert {name: in_force[name] for name in asked} == asked
    assert len(cold[0].ranks[0].first_losses) > 1 and "signalled\nhung up" in cold[0].log_tail
    for result in prepared:
        assert "prepares.py" in result.start_reason and "DataLoader" in result.start_reason
        assert result.saved_s > BEGINNING_S
        assert ("server" in result.durations_s) == (result is prepared[0])
        parts = {name: seconds for name, seconds in result.durations_s.items() if name != "server"}
        assert sum(parts.values()) == pytest.approx(result.wall_s, abs=0.001)
        assert parts["preparation"] < cold[0].durations_s["preparation"]
    for alike in ((prepared[0], prepared[2], cold[0]), (prepared[1], cold[1])):
        peaks = [result.peak_memory_bytes or 0 for result in alike]
        assert max(peaks) < 1.25 * min(peaks), peaks
    assert digest(study.ground.user, study.ground.home) == study.ground.before
    assert study.ground.processes_left() == [] and study.ground.folders_left() == []


@pytest.mark.slow
def test_settings_that_a_script_asks_for_matter_where_it_does(ground: Ground) -> None:
    study = opened(ground, "claims.py")
    other = replace(study.script_settings, batch_size=16, grad_accum_steps=2)
    with study.runner() as runner:
        results = [run(runner, study.job(settings=settings)) for settings in (study.script_settings, other)]
    assert [result.start for result in results] == ["prepared"] * 2, results[0].start_reason
    assert "autotune.load" in results[0].start_reason
    assert results[1].ranks[0].observed["grad_accum_steps"] == 2


@pytest.mark.slow
def test_a_script_that_freezes_its_heap_before_its_imports_gets_a_cold_start(ground: Ground) -> None:
    study = opened(ground, "freezes.py")
    with study.runner() as runner:
        result = run(runner, study.job())
    assert result.start == "cold" and "freezes its heap before it imports numpy" in result.start_reason
    assert result.outcome is Outcome.OK, result.reason + result.log_tail


@pytest.mark.slow
def test_a_script_that_fails_after_its_beginning_fails_in_its_trial(study: Study) -> None:
    with study.runner() as runner:
        prepared = run(runner, study.job("raises"))
        again = run(runner, study.job("raises"))
    cold = run(study.cold, study.job("raises"))
    assert (prepared.start, again.start) == ("prepared", "forked")
    assert prepared.outcome is cold.outcome is Outcome.CRASHED and "after the beginning" in prepared.reason
    assert "failed under these settings" in again.start_reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("thread", "has started the thread"),
        ("native", "has started 1 thread (own-pool) outside of Python"),
        ("process", "has started a process"),
        ("pipe", "keeps pipe:"),
        ("shared", "/dev/shm/torch_"),
        ("removed", "(deleted) open"),
        ("timer", "has set a timer"),
        ("output", "standard stream"),
    ],
)
def test_what_a_fork_cannot_take_along_is_named_and_the_trial_is_forked_from_its_imports(
    study: Study, how: str, reason: str
) -> None:
    with study.runner() as runner:
        result = run(runner, study.job(how))
        assert not runner._preparations
    assert result.start == "forked" and reason in result.start_reason
    assert result.ranks[0].first_losses, f"{result.reason} {result.log_tail}"


@pytest.mark.slow
def test_a_beginning_that_asks_for_the_threads_does_for_settings_that_leave_them(study: Study) -> None:
    one = replace(study.script_settings, intra_op_threads=1)
    with study.runner() as runner:
        results = [run(runner, study.job("threads", settings=settings)) for settings in (study.script_settings, one)]
    assert [result.start for result in results] == ["prepared", "forked"], results[0].start_reason
    assert "number of threads" in results[1].start_reason


@pytest.mark.slow
def test_a_beginning_that_opens_more_files_than_select_can_number_does(study: Study) -> None:
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("this system permits too few open files")
    with study.runner() as runner:
        result = run(runner, study.job("files"))
    assert (result.start, result.outcome) == ("prepared", Outcome.OK), f"{result.start_reason} {result.reason}"


@pytest.mark.slow
def test_a_beginning_that_draws_a_bar_does_and_no_trial_waits_for_anothers_lock(study: Study) -> None:
    pytest.importorskip("tqdm", reason="the script draws its bar by it")
    with study.runner() as runner:
        result = run(runner, study.job("bar"))
    assert result.start == "prepared", result.start_reason
    assert "bars take turns by another lock: True" in result.log_tail


@pytest.mark.slow
def test_only_the_beginning_asks_for_devices_in_a_way_that_spares_the_driver(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    with study.runner() as runner:
        result = run(runner, study.job("devices"))
    assert result.start == "prepared", result.start_reason
    assert "asked for devices by NVML: 1" in result.log_tail and "then by NVML: None" in result.log_tail


@pytest.mark.slow
def test_the_device_that_a_beginning_chooses_is_made_the_current_one_in_each_trial(study: Study) -> None:
    job, devices = study.job("chooses"), study.facts.cuda_devices
    assert devices is not None
    devices = replace(devices, num_devices=1, capabilities=((9, 0),))
    job = replace(job, facts=replace(study.facts, cuda_devices=devices))
    with study.runner() as runner:
        results = [run(runner, job) for _ in range(2)]
    assert [result.start for result in results] == ["prepared"] * 2, results[0].start_reason
    for result in results:
        assert "computes in bf16: True\n" in result.log_tail
    chosen_in, *made_in = [
        {line.rpartition(" ")[2] for line in result.log_tail.splitlines() if start in line}
        for result, start in ((results[0], "chooses a device"), *((each, "device 0 is") for each in results))
    ]
    assert all(len(pids) == 1 for pids in (chosen_in, *made_in))
    assert len(chosen_in.union(*made_in)) == 3, "the beginning and each trial are processes of their own"


@pytest.mark.slow
def test_a_short_beginning_is_not_prepared(study: Study) -> None:
    with study.runner(least_preparation_s=60.0) as runner:
        result = run(runner, study.job())
    assert result.start == "forked" and "imports included" in result.start_reason


@pytest.mark.slow
def test_a_run_that_is_cancelled_while_its_beginning_is_prepared_is_interrupted(study: Study) -> None:
    with study.runner() as runner:
        handle = runner.start(study.job())
        handle.poll()
        handle.cancel()
        assert handle.result().outcome is Outcome.INTERRUPTED
        assert run(runner, study.job()).start == "prepared"
    assert study.ground.processes_left() == [] and study.ground.folders_left() == []


@pytest.mark.slow
def test_trials_in_a_row_leave_the_beginning_and_the_machine_as_they_were(study: Study) -> None:
    with study.runner() as runner:

        def run_one() -> None:
            result = run(runner, study.job("leaves"))
            assert (result.start, result.outcome) == ("prepared", Outcome.OK), result.reason + result.log_tail

        run_one()
        (preparation,) = runner._preparations.values()
        study.ground.check_growth(preparation.pid, 300, run_one)


@SLOWLY_REDIRECTED
def test_a_killed_tuner_leaves_no_process_and_no_folder(study: Study) -> None:
    tuner = start_tuner_in(study.ground, "prepared", "prepares.py")
    study.ground.wait_for_line(b"ready")
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    wait_until_nothing_is_left(study.ground)
