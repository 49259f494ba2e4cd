"""What the loop does when the time of the search ends before a trial does."""

from __future__ import annotations

import math
import re
import tempfile
from pathlib import Path

import pytest

from autotune.lab.function_runner import FunctionRunner
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import Status
from autotune.study.budget import OVERRUN_SHARE, Budget
from tests.unit.study.test_trial_loop import FACTS, Bench, loader_bound

CUT = TrialResult(outcome=Outcome.INTERRUPTED, reason="The time left for it ran out before it was through.")
LIMIT_S = 100.0 * (1 + OVERRUN_SHARE)


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


class Slow(FunctionRunner):
    """Trials take so long each; one that is not through by the end of the time is ended there."""

    def __init__(self, clock, trial_s):
        super().__init__(loader_bound, FACTS)
        self.clock, self.trial_s, self.jobs = clock, trial_s, []

    def start(self, job):
        self.jobs.append(job)
        run = super().start(job)
        is_cut = self.clock.now_s + self.trial_s > LIMIT_S
        self.clock.now_s = min(LIMIT_S, self.clock.now_s + self.trial_s)
        if is_cut:
            run.result = lambda: CUT
        return run


@pytest.fixture
def searched():
    with tempfile.TemporaryDirectory(prefix="time-") as folder:
        benches = []

        def run(trial_s):
            bench = Bench(Path(folder)).create()
            benches.append(bench)
            loop, clock = bench.loop(), Clock()
            loop._budget = loop.measuring._budget = bench.budget = Budget(100.0, 0.0, clock)
            loop.measuring._runner = Slow(clock, trial_s)
            return bench, loop, loop.run().reason

        yield run
        for bench in benches:
            bench.repository.close()


def test_a_baseline_that_takes_longer_than_all_the_time_says_so_and_is_no_failure_of_the_script(searched):
    bench, _, reason = searched(1000.0)
    assert "before the script's own settings were measured once" in reason and "--time" in reason
    assert re.search(r"About --time [1-9][0-9.]*m is enough", reason)
    assert [trial.result.outcome for trial in bench.repository.trials("train")] == [Outcome.INTERRUPTED]
    result = bench.result(None, is_limit=True)
    assert result.status is Status.TOO_SHORT and result.status.exit_code == 0


def test_every_trial_is_told_when_the_time_ends(searched):
    _, loop, _ = searched(30.0)
    assert len(loop.measuring._runner.jobs) >= 1
    assert all(job.ends_by is not None and math.isfinite(job.ends_by) for job in loop.measuring._runner.jobs)


def test_a_final_that_the_time_has_cut_is_not_run_again(searched):
    bench, loop, _ = searched(1000.0)
    num_before = len(loop.measuring._runner.jobs)
    assert loop.measuring.measure(bench.space.script_settings, is_final=True).outcome is Outcome.INTERRUPTED
    assert len(loop.measuring._runner.jobs) == num_before + 1
