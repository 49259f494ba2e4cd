"""Trials that train on the device are forked as well, also from a beginning that has asked for devices."""

from __future__ import annotations

import math

import pytest

from autotune.model.outcome import Outcome
from autotune.runner.forked import ForkRunner
from tests.gpu.bench import Bench, note, rank_of

pytestmark = pytest.mark.gpu


def test_forked_and_prepared_trials_train_on_the_device_as_cold_ones_do(bench: Bench) -> None:
    jobs = bench.probed("begins.py")
    assert jobs.facts is not None
    bench.workspace.probe_is_through()
    results = [bench.run(bench.trial(jobs))]
    for least_s in (math.inf, 0.0):
        with ForkRunner(bench.runner, jobs.facts, least_preparation_s=least_s) as runner:
            results += [runner.start(bench.trial(jobs)).result() for _ in range(2)]
    for result in results:
        note(f"a {result.start} trial, {result.start_reason}", f"{result.wall_s:.1f} s, saved {result.saved_s:.1f} s")
        assert result.outcome is Outcome.OK, f"{result.start} {result.reason} {result.log_tail}"
        assert "trains on cuda:0" in result.log_tail
    reasons = [result.start_reason for result in results]
    assert [result.start for result in results] == ["cold", "forked", "forked", "prepared", "prepared"], reasons
    losses = [rank_of(result).first_losses for result in results]
    assert len(losses[0]) > 1
    for others in losses[1:]:
        assert others == pytest.approx(losses[0], rel=1e-4)
