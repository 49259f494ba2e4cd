"""A step costs a forked trial what it costs a cold one."""

from __future__ import annotations

import math

import pytest

from tests.benchmarks.startup.trials import open_trials
from tests.benchmarks.startup.turns import WITHIN_REACH, take_turns

NOISE = math.log(1.25)
"""Two cold trials beside each other differ by a few percent on a machine that others use."""


@pytest.mark.slow
def test_a_step_of_a_forked_trial_takes_the_processor_as_long_as_one_of_a_cold_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with open_trials(wish=WITHIN_REACH) as trials:
        pair = take_turns(trials, ("forked", "cold"))
    assert abs(pair.log_ratio("cpu_s")) < NOISE
