"""What holds of every runner, whatever runs behind it. Inherit, and say what it runs."""

from __future__ import annotations

import time

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.protocol.job import TrialJob
from autotune.runner.runner import Run, Runner

STARTS = {"cold", "forked", "replayed", "function"}
LIMIT_S = 60.0


def finish(run: Run) -> None:
    """Waits for the end of a run, which is what a tuner does with it."""
    deadline = time.monotonic() + LIMIT_S
    while not run.poll():
        assert time.monotonic() < deadline, "the run does not come to its end"
        time.sleep(0.02)


class RunnerContract:
    """Subclasses have fixtures `runner`, `trial` (a job that is measured), `too_large` (one that does not fit) and
    `probe` (a job that learns)."""

    def test_a_trial_that_fits_is_measured(self, runner: Runner, trial: TrialJob) -> None:
        result = self.result_of(runner, trial)
        assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
        assert result.measurement is not None
        assert 0 < result.measurement.low <= result.measurement.samples_per_second <= result.measurement.high
        assert result.start in STARTS

    def test_a_trial_that_does_not_fit_is_infeasible_and_says_why(self, runner: Runner, too_large: TrialJob) -> None:
        result = self.result_of(runner, too_large)
        assert result.outcome.is_infeasible, f"{result.reason} {result.log_tail}"
        assert result.reason and result.measurement is None

    def test_a_run_that_is_over_stays_over(self, runner: Runner, trial: TrialJob) -> None:
        run = runner.start(trial)
        finish(run)
        assert run.poll() and run.poll()
        assert run.result().outcome is Outcome.OK

    def test_to_cancel_what_is_over_changes_nothing(self, runner: Runner, trial: TrialJob) -> None:
        run = runner.start(trial)
        finish(run)
        run.cancel()
        assert run.poll()
        assert run.result().outcome is Outcome.OK

    def test_runs_follow_each_other(self, runner: Runner, trial: TrialJob, too_large: TrialJob) -> None:
        outcomes = [self.result_of(runner, job).outcome for job in (too_large, trial)]
        assert outcomes[0].is_infeasible and outcomes[1] is Outcome.OK

    def test_a_probe_learns_the_facts(self, runner: Runner, probe: TrialJob) -> None:
        run = runner.start(probe)
        finish(run)
        result = run.probe_result()
        assert result.facts is not None, result.reason
        assert result.reason == "" and not result.is_interrupted

    def test_a_closed_runner_starts_again(self, runner: Runner, trial: TrialJob) -> None:
        assert self.result_of(runner, trial).outcome is Outcome.OK
        runner.close()
        assert self.result_of(runner, trial).outcome is Outcome.OK

    @staticmethod
    def result_of(runner: Runner, job: TrialJob) -> TrialResult:
        run = runner.start(job)
        finish(run)
        return run.result()


class AtOnceContract(RunnerContract):
    """Also holds of runners that only look something up."""

    def test_a_run_is_over_when_it_was_started(self, runner: Runner, trial: TrialJob) -> None:
        assert runner.start(trial).poll()

    def test_a_trial_is_no_probe_and_a_probe_no_trial(self, runner: Runner, trial: TrialJob, probe: TrialJob) -> None:
        with pytest.raises(ValueError, match="trial"):
            runner.start(trial).probe_result()
        with pytest.raises(ValueError, match="probe"):
            runner.start(probe).result()
