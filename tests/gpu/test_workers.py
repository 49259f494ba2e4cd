"""Forked and spawned workers of a pinned loader beside a device that is on: no setting of ours acts in them."""

from __future__ import annotations

import pytest

from autotune.model.outcome import Outcome
from tests.gpu.bench import Bench, rank_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_pinning_thread_sets_no_threads_of_the_script(bench: Bench, method: str) -> None:
    jobs = bench.probed("converts.py", method)
    assert jobs.facts is not None and jobs.script_settings is not None
    assert not jobs.facts.own_threads
    result = bench.run(bench.trial(jobs))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["intra_op_threads"] == jobs.script_settings.intra_op_threads


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_workers_are_asked_nothing_that_only_cuda_can_answer(bench: Bench, method: str, precision: str) -> None:
    jobs = bench.probed("converts.py", method)
    result = bench.run(bench.trial(jobs, non_blocking=True, precision=precision, channels_last=True))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["precision"] == precision
