"""Forked and spawned workers of a pinned loader beside a device that is on: no setting of ours acts in them."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from autotune.measure.block import Phase
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


def test_page_locked_memory_has_its_size_before_the_window(bench: Bench) -> None:
    jobs = bench.probed("pins.py")
    result = bench.run(bench.trial(jobs, num_workers=4, prefetch_factor=4, pin_memory=True))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    rank = rank_of(result)
    grew = [int(step) for step in re.findall(r"grew at step (\d+)", result.log_tail)]
    steps = Counter()
    for block in rank.blocks:
        steps[block.phase] += block.num_steps
    before = rank.num_steps - steps[Phase.WINDOW] - steps[Phase.RESTART]
    window = range(before + 1, before + steps[Phase.WINDOW] + 1)  # New workers lock new pages after the window.
    assert grew and not set(grew) & set(window), (grew, window)
