"""What the loop learns from one trial for the next ones: first losses in fp32, and where the script itself ends."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from autotune.measure.loss_parity import LossReference
from autotune.model.outcome import Outcome
from autotune.model.result import RankStatus, TrialResult
from autotune.verdict.aggregate import measurement_of
from autotune.verdict.judge import ENDED_EARLY
from tests.unit.runner.samples import rank
from tests.unit.study.test_trial_loop import Bench, loader_bound


class Scripted:
    """A runner whose first answers are given beforehand, and that keeps the jobs that it was asked to run."""

    def __init__(self, inner, answers):
        self.inner, self.answers, self.jobs = inner, list(answers), []

    def start(self, job):
        self.jobs.append(job)
        run = self.inner.start(job)
        return Answered(self.answers.pop(0)) if self.answers else run


class Answered:
    def __init__(self, result):
        self.answer = result

    def poll(self):
        return True

    def result(self):
        return self.answer


@pytest.fixture
def run_with():
    """The jobs and the records of a search of three trials whose first runs end so."""
    with tempfile.TemporaryDirectory(prefix="loop-") as folder:

        def run(*answers, measure=loader_bound):
            bench = Bench(Path(folder), measure, max_trials=3).create()
            loop = bench.loop()
            loop.measuring._runner = runner = Scripted(loop.measuring._runner, answers)
            loop.run()
            records = bench.repository.trials("train")
            bench.repository.close()
            return runner.jobs, records

        yield run


def ended_after(num_steps: int) -> TrialResult:
    ended = rank(status=RankStatus.ENDED, num_steps=num_steps, blocks=())
    return TrialResult(outcome=Outcome.INVALID, reason=ENDED_EARLY, is_inconclusive=True, ranks=(ended,))


def test_a_script_that_ends_too_early_is_run_again_with_a_shorter_warm_up(run_with):
    jobs, records = run_with(ended_after(200))
    assert [job.script_steps for job in jobs] == [None, 200, 200, 200]
    assert records[0].result.outcome is Outcome.OK
    assert "A first run ended invalid" in records[0].result.notes[-1]


def test_a_final_that_outlasts_the_script_is_run_again_with_a_shorter_warm_up(tmp_path):
    bench = Bench(tmp_path).create()
    loop = bench.loop()
    loop.measuring._runner = runner = Scripted(loop.measuring._runner, [ended_after(200)])
    result = loop.measuring.measure(bench.space.script_settings, is_final=True)
    bench.repository.close()
    assert [job.script_steps for job in runner.jobs] == [None, 200]
    assert result.outcome is Outcome.OK
    assert "A first run ended invalid" in result.notes[-1]


def test_a_final_that_was_ended_from_outside_is_run_again(tmp_path):
    bench = Bench(tmp_path).create()
    loop = bench.loop()
    loop.measuring._runner = Scripted(
        loop.measuring._runner, [TrialResult(outcome=Outcome.INTERRUPTED, reason="SIGKILL")]
    )
    result = loop.measuring.measure(bench.space.script_settings, is_final=True)
    bench.repository.close()
    assert result.outcome is Outcome.OK


def test_it_is_not_run_a_third_time_for_the_same_end(run_with):
    jobs, records = run_with(ended_after(200), ended_after(200))
    assert records[0].result.reason == ENDED_EARLY
    assert jobs[1].script_steps == 200


def test_a_script_that_fails_past_its_epochs_end_is_run_again_with_epochs_that_end(run_with):
    raised = rank(status=RankStatus.RAISED, is_past_its_epoch=True, blocks=())
    jobs, records = run_with(TrialResult(outcome=Outcome.CRASHED, reason="IndexError", ranks=(raised,)))
    assert [job.keeps_epochs for job in jobs] == [False, True, True, True]
    assert records[0].result.outcome is Outcome.OK


def test_the_losses_of_a_trial_in_fp32_go_with_every_later_job(run_with):
    measured = measurement_of([rank()])
    losses = rank(first_losses=(2.0, 1.5, 1.0), start_digest="start", observed={"precision": "fp32"})
    jobs, _ = run_with(TrialResult(outcome=Outcome.OK, measurement=measured, ranks=(losses,)))
    reference = LossReference(start_digest="start", losses=(2.0, 1.5, 1.0))
    assert [job.request.references for job in jobs] == [(), (reference,), (reference,)]


@pytest.mark.parametrize(("batches", "known"), [(((), (7, 7), (7, 7, 7)), [0, 2]), (((7, 7), (7, 7, 7), (7,)), [2, 2])])
def test_a_reference_stays_unless_it_is_of_an_older_version_without_batches(run_with, batches, known):
    measured = measurement_of([rank()])
    fp32 = {"first_losses": (2.0, 1.5, 4.0), "start_digest": "start", "observed": {"precision": "fp32"}}
    ranks = [rank(first_batches=each, **fp32) for each in batches]
    jobs, _ = run_with(*[TrialResult(outcome=Outcome.OK, measurement=measured, ranks=(each,)) for each in ranks])
    assert [len(job.request.references[0].batches) for job in jobs[1:]] == known
