"""Several processes that train together, started by torchrun or by the script: one trial, with one rate and one end."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.measure.block import Phase
from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import StartKind, TrialResult
from autotune.protocol.codec import to_plain
from autotune.protocol.entry_points import INJECT
from autotune.protocol.job import Mode
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.live_runner import LiveRunner
from autotune.sandbox.tree_removal import remove_tree
from autotune.space.derive import derive_space
from autotune.study.jobs import Jobs
from autotune.study.probing import probe_script
from autotune.study.stop import StopRequest
from tests.integration.runner.ground import digest, processes_of
from tests.integration.shapes.ground import Ground, quick
from tests.integration.shapes.shape import Shape
from tests.integration.shapes.shapes import RANKS

pytestmark = pytest.mark.slow
TORCHRUN, SPAWN = RANKS


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A ground where the user has set no number of threads."""
    root = Path(tempfile.mkdtemp(prefix="ranks-")).resolve()
    made = Ground(root)
    monkeypatch.delenv("OMP_NUM_THREADS")
    yield made
    made.close()
    remove_tree(root)


def probed(ground: Ground, shape: Shape) -> Jobs:
    jobs = ground.jobs(shape, ground.put(shape))
    facts = probe_script(jobs, ground.cold, lambda: None, StopRequest())
    space = derive_space(facts, jobs.target.machine, jobs.spec)
    return replace(jobs, facts=facts, script_settings=space.script_settings)


def run(ground: Ground, jobs: Jobs, *arguments: str, **changes: Any) -> TrialResult:
    assert jobs.script_settings is not None
    job = jobs.trial(replace(jobs.script_settings, **changes))
    return ground.cold.start(quick(replace(job, command=(*job.command, *arguments)))).result()


@pytest.mark.parametrize("shape", [TORCHRUN, SPAWN], ids=lambda shape: shape.name)
def test_two_ranks_have_one_rate_of_all_samples_over_the_slowest_ranks_time(ground: Ground, shape: Shape) -> None:
    result = run(ground, probed(ground, shape), "--uneven")
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    windows = [[block for block in rank.blocks if block.phase is Phase.WINDOW] for rank in result.ranks]
    samples_per_step = sum(sum(b.num_samples for b in window) / sum(b.num_steps for b in window) for window in windows)
    assert samples_per_step == 16
    slowest_s = max(sum(b.duration_s for b in window) / sum(b.num_steps for b in window) for window in windows)
    assert slowest_s > 0.002  # what the second rank sleeps
    assert result.measurement is not None
    assert result.measurement.steady_samples_per_second == pytest.approx(samples_per_step / slowest_s)


@pytest.mark.parametrize("shape", [TORCHRUN, SPAWN], ids=lambda shape: shape.name)
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_that_dies_ends_the_trial_and_nothing_is_left(ground: Ground, shape: Shape, rank: str) -> None:
    jobs = probed(ground, shape)
    before = digest(ground.user, ground.home)
    result = run(ground, jobs, "--die", rank)
    assert result.outcome is Outcome.CRASHED, f"{result.outcome} {result.reason} {result.log_tail}"
    assert result.measurement is None
    assert processes_of(ground.workspace.folder) == []
    assert digest(ground.user, ground.home) == before


@pytest.mark.parametrize("shape", [TORCHRUN, SPAWN], ids=lambda shape: shape.name)
def test_real_training_of_two_ranks_in_micro_batches_ends_with_the_weights_of_whole_ones(
    ground: Ground, shape: Shape
) -> None:
    jobs = probed(ground, shape)
    assert jobs.script_settings is not None and jobs.facts is not None
    weights = []
    for settings in (jobs.script_settings, replace(jobs.script_settings, batch_size=2, grad_accum_steps=4)):
        job = replace(jobs.trial(settings), mode=Mode.RUN)
        path = os.pathsep.join([INJECT, os.environ["PYTHONPATH"]])
        environment = {**os.environ, "AUTOTUNE_JOB": json.dumps(to_plain(job)), "PYTHONPATH": path}
        command = (*job.command, "--epochs", "2")
        done = subprocess.run(command, env=environment, cwd=job.cwd, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("autotune: in force") == 1, done.stderr
        weights.append(json.loads(done.stdout.strip().splitlines()[-1]))
    assert weights[1] == pytest.approx(weights[0], rel=2e-5, abs=1e-7)


def test_the_one_thread_that_torchrun_sets_is_said_and_others_are_tried(unset: Ground) -> None:
    jobs = probed(unset, TORCHRUN)
    assert isinstance(jobs.facts, ScriptFacts) and jobs.script_settings is not None
    assert "launcher_threads" in jobs.facts.notes
    assert jobs.script_settings.intra_op_threads == 1
    space = derive_space(jobs.facts, replace(jobs.target.machine, usable_cpus=4.0), jobs.spec)
    assert space.allowed["intra_op_threads"] == (1, 2)
    own, more = run(unset, jobs), run(unset, jobs, intra_op_threads=2)
    assert [rank.observed["intra_op_threads"] for rank in own.ranks] == [1, 1]
    assert more.outcome is Outcome.OK, more.reason
    assert [rank.observed["intra_op_threads"] for rank in more.ranks] == [2, 2]


def test_a_number_of_threads_that_the_user_set_is_the_users(ground: Ground) -> None:
    jobs = probed(ground, TORCHRUN)
    assert jobs.facts is not None and "launcher_threads" not in jobs.facts.notes


@pytest.mark.parametrize("shape", [TORCHRUN, SPAWN], ids=lambda shape: shape.name)
def test_all_ranks_switch_before_the_same_step(ground: Ground, shape: Shape) -> None:
    jobs = probed(ground, shape)
    assert jobs.facts is not None and jobs.script_settings is not None
    runner = LiveRunner(ForkRunner(ground.cold, jobs.facts))
    results = []
    try:
        for change in ({}, {"num_workers": 1}, {"batch_size": 4, "grad_accum_steps": 2}, {}):
            job = jobs.trial(replace(jobs.script_settings, **change))
            started = runner.start(replace(quick(job), serves=True))
            while not started.poll():
                time.sleep(0.02)
            results.append(started.result())
            assert results[-1].outcome is Outcome.OK, f"{change}: {results[-1].why} {results[-1].log_tail}"
            seen = [rank.observed for rank in results[-1].ranks]
            assert len(seen) == 2 and all(one[name] == value for one in seen for name, value in change.items())
    finally:
        runner.close()
    assert [result.start is StartKind.LIVE for result in results] == [False, True, True, True]
    assert [dict(rank.observed) for rank in results[-1].ranks] == [dict(rank.observed) for rank in results[0].ranks]
