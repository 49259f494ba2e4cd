"""Settings under which the script fails, found while the loop runs: a real database, a real search, no process."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.lab.function_runner import FunctionRunner
from autotune.model.events import Notice
from autotune.model.outcome import Outcome
from autotune.model.result import RaisedError, RankStatus, StartKind, TrialResult
from autotune.model.search_result import LeftOut, SearchResult, Status
from autotune.report.words import left_out_words
from autotune.study.status import left_out_in, overview_in, status_result
from tests.unit.runner.samples import rank
from tests.unit.study.test_trial_loop import FACTS, Bench, loader_bound

ERROR = RaisedError(kind="RuntimeError", message="no such kernel", is_out_of_memory=False, place="model.py:58")
CRASH = TrialResult(
    outcome=Outcome.CRASHED,
    reason="RuntimeError: no such kernel",
    place="model.py:58",
    ranks=(rank(status=RankStatus.RAISED, blocks=(), error=ERROR),),
)


def failing(fails, crash=CRASH):
    """A runner of a script that fails under some settings."""

    class Failing(FunctionRunner):
        def start(self, job):
            run = super().start(job)
            if fails(job.request.settings):
                run.result = lambda: crash
            return run

    return Failing(loader_bound, FACTS)


def in_half(settings):
    return settings.precision == "bf16"


@pytest.fixture
def bench():
    with tempfile.TemporaryDirectory(prefix="guilty-") as folder:
        one = Bench(Path(folder), max_trials=16).create()
        yield one
        one.repository.close()


def searched(one, fails, **options):
    loop = one.loop()
    loop.measuring._runner = failing(fails, **options)
    loop.run()
    return loop, one.repository.trials("train")


def left_out_so_far(bench):
    """What `autotune best` says of a study that is not over."""
    record = bench.repository.study("train")
    trials = overview_in(bench.repository, record)
    return status_result(record, trials, left_out_in(bench.repository, record, trials)).left_out


def test_a_setting_that_crashes_is_left_out_with_its_reason_and_the_rest_is_tried(bench):
    loop, trials = searched(bench, in_half)
    failed = [trial for trial in trials if trial.result.outcome is Outcome.CRASHED]
    assert 1 <= len(failed) <= 2 < len(trials)
    assert set(failed[-1].settings.differences(bench.space.script_settings)) == {"precision"}
    result = bench.result(bench.finals(loop))
    assert result.status is Status.IMPROVED and result.best.settings.num_workers == 2
    place = LeftOut(
        settings=(("precision", "bf16"),),
        reason="RuntimeError: no such kernel at model.py:58",
        trial=failed[-1].number,
    )
    assert result.left_out == (place,)
    assert SearchResult.from_document(result.document()).left_out == (place,)
    assert left_out_words(result.left_out) == [
        f"precision=bf16 left out: RuntimeError: no such kernel at model.py:58 (trial {failed[-1].number})"
    ]


def test_the_summary_so_far_of_a_study_that_is_not_over_names_what_is_left_out(bench):
    searched(bench, in_half)
    (left_out,) = left_out_so_far(bench)
    assert left_out.settings == (("precision", "bf16"),)


def test_guilty_settings_are_never_proposed_again_by_the_sampler_neither(bench):
    _, trials = searched(bench, in_half)
    stages = {trial.stage for trial in trials}
    assert {"sampled", "neighbour"} & stages
    last = max(trial.number for trial in trials if in_half(trial.settings))
    first_after_plan = min(trial.number for trial in trials if trial.stage in ("sampled", "neighbour"))
    assert last < first_after_plan


def test_a_killed_search_knows_after_its_resume_what_was_guilty_before(bench):
    class Killed(BaseException):
        pass

    def dies_after_the_crash(settings):
        if any(trial.result.outcome is Outcome.CRASHED for trial in bench.repository.trials("train")):
            raise Killed
        return in_half(settings)

    with pytest.raises(Killed):
        searched(bench, dies_after_the_crash)
    loop = bench.loop()
    loop._owner = replace(loop._owner, pid=loop._owner.pid + 1)
    loop.measuring._runner = failing(in_half)
    loop.recover()
    loop.run()
    trials = bench.repository.trials("train")
    assert len([trial for trial in trials if in_half(trial.settings)]) <= 2
    assert len(trials) == len({trial.settings for trial in trials}) == 16


def test_an_error_of_the_script_under_our_settings_is_not_run_a_second_time(bench):
    _, trials = searched(bench, in_half)
    crashed = [trial for trial in trials if trial.result.outcome is Outcome.CRASHED]
    assert all(trial.result.notes == () for trial in crashed)
    assert not any("run again" in event.message for event in bench.events if isinstance(event, Notice))


def test_a_trial_that_failed_from_the_scripts_beginning_on_is_run_again_and_that_is_said(bench):
    prepared = replace(CRASH, start=StartKind.PREPARED, wall_s=22.0)
    _, trials = searched(bench, in_half, crash=prepared)
    (said, *_) = [event.message for event in bench.events if isinstance(event, Notice)]
    assert said == (
        "The trial is run again. A first run, from the script's own beginning on, ended crashed after 22 s: "
        "RuntimeError: no such kernel at model.py:58"
    )
    noted = [trial.result.notes[-1] for trial in trials if trial.result.notes]
    assert noted and all("from the script's own beginning on" in note for note in noted)


FULL = TrialResult(outcome=Outcome.OUT_OF_MEMORY, reason="CUDA out of memory")


@pytest.mark.parametrize(("start", "runs_per_trial"), [(StartKind.LIVE, 2), (StartKind.FORKED, 1)])
def test_what_a_running_process_has_no_memory_for_is_tried_in_a_new_process(bench, start, runs_per_trial):
    runs = []

    def fails(settings):
        runs.extend([settings] * in_half(settings))
        return in_half(settings) and len(runs) == 1  # The second run has a process, and all memory, to itself.

    _, trials = searched(bench, fails, crash=replace(FULL, start=start))
    first = next(trial for trial in trials if in_half(trial.settings))
    assert runs[:2].count(first.settings) == runs_per_trial
    assert first.result.outcome is (Outcome.OK if runs_per_trial == 2 else Outcome.OUT_OF_MEMORY)


def test_want_of_memory_stays_known_where_the_run_in_a_new_process_was_cut(bench):
    cut = TrialResult(outcome=Outcome.INTERRUPTED, reason="The time was spent.")
    ends = {"first": replace(FULL, start=StartKind.LIVE), "again": cut}
    seen = []

    class FullThenCut(FunctionRunner):
        def start(self, job):
            run = super().start(job)
            if in_half(job.request.settings):
                end = "again" if job.request.settings in seen else "first"
                seen.append(job.request.settings)
                run.result = lambda: ends[end]
            return run

    loop = bench.loop()
    loop.measuring._runner = FullThenCut(loader_bound, FACTS)
    loop.run()
    first = next(trial for trial in bench.repository.trials("train") if in_half(trial.settings))
    assert seen.count(first.settings) == 2 and first.result.outcome is Outcome.OUT_OF_MEMORY


@pytest.mark.parametrize("outcome", [Outcome.TIMED_OUT, Outcome.INVALID])
def test_what_times_out_or_is_invalid_is_left_out_as_well(bench, outcome):
    _, trials = searched(bench, in_half, crash=TrialResult(outcome=outcome, reason="It did not end within 1 min."))
    failed = [trial for trial in trials if trial.result.outcome is outcome]
    assert 1 <= len(failed) <= 2
    (left_out,) = left_out_so_far(bench)
    assert left_out.settings == (("precision", "bf16"),)


def test_a_script_whose_every_change_fails_ends_with_its_own_settings(bench):
    loop, trials = searched(
        bench, lambda settings: settings != bench.space.script_settings.canonical(device_is_cpu=True)
    )
    assert len(trials) <= 16
    assert bench.result(bench.finals(loop)).status is Status.NO_GAIN
