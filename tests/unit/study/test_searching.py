"""Whole searches in this process: what is left behind, what a resume refuses, what a new study takes over."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from functools import partial

import optuna
import pytest

from autotune.cli.main import main
from autotune.emit.tuned_config import read_config
from autotune.errors import (
    EveryTrialFailedError,
    SearchSpaceError,
    StoreError,
    StudyExistsError,
    StudyNotFoundError,
    UsageError,
)
from autotune.lab.function_runner import FinishedRun, Measured, evaluate
from autotune.model.events import FinalFinished, SearchStarted
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import Status
from autotune.settings import Precision, Settings
from autotune.study import searching
from autotune.study.limits import keeps_gain
from autotune.study.stop import StopRequest
from autotune.units import MIB, format_minutes
from tests.unit.facts import loader_facts
from tests.unit.study.whole_search import FACTS, by_workers, folder

__all__ = ["folder"]


def workspaces(folder):
    return list((folder.path.parent / "space").glob(f"autotune-{os.getuid()}/*"))


def interrupted_after(folder, num_trials, **changes):
    """A search that is asked to stop in that trial."""
    stop = StopRequest()

    def measure(settings):
        if len(folder.runner.ran) == num_trials:
            stop.request()
        return by_workers(settings)

    folder.runner.measure = measure
    result = folder.search(stop=stop, **changes)
    assert result.status is Status.INTERRUPTED
    folder.runner.measure = by_workers
    return result


def test_a_search_ends_with_its_config_and_leaves_no_workspace(folder):
    result = folder.search()
    assert result.status is Status.IMPROVED
    assert result.best.settings.num_workers == 2
    assert (folder.path / "autotune.yaml").is_file()
    assert workspaces(folder) == []


def unsettled(rate):
    """A trial that came to its time limit before its rate was known within the rule's 5 %."""
    settled = evaluate(lambda _: Measured(samples_per_second=rate, half_width_ratio=0.3), Settings(), 4 << 30)
    return replace(settled, measurement=replace(settled.measurement, is_converged=False))


def test_a_rate_that_did_not_settle_reaches_the_finals_but_no_config_without_them(folder):
    stop = StopRequest()

    def measure(settings):
        """One worker seems to be the best of all, until it is measured again."""
        num_before = sum(settings == other for other in folder.runner.ran[:-1])
        if settings.num_workers != 1:
            return by_workers(settings)
        return unsettled(900.0) if num_before == 0 else replace(by_workers(settings), samples_per_second=90.0)

    def measure_and_stop(settings):
        if len(folder.runner.ran) == 6:
            stop.request()
        return measure(settings)

    folder.runner.measure = measure_and_stop
    interrupted = folder.search(stop=stop)
    assert any(settings.num_workers == 1 for settings in folder.runner.ran)
    assert (interrupted.status, interrupted.config) == (Status.INTERRUPTED, None)
    assert interrupted.best is None or interrupted.best.samples_per_second is None
    assert not (folder.path / "autotune.yaml").exists()

    folder.runner.measure = measure
    result = folder.resume()
    with folder.repository() as repository:
        finals = repository.finals("train")
    assert any(final.settings.num_workers == 1 for final in finals)
    assert result.best.settings.num_workers != 1
    assert read_config(folder.path / "autotune.yaml").samples_per_second < 900.0


# What taught nothing


def test_a_script_that_does_not_train_leaves_neither_study_nor_workspace(folder):
    folder.runner.probe_error = "The script ended (exit code 0) without one optimizer step."
    with pytest.raises(EveryTrialFailedError, match="without one optimizer step") as caught:
        folder.search()
    assert "no such file" in caught.value.hint
    assert "started by itself: python train.py" in caught.value.hint
    assert folder.studies() == []
    assert workspaces(folder) == []
    folder.runner.probe_error = None
    assert folder.search().status is Status.IMPROVED


def test_a_search_that_is_interrupted_in_its_probe_leaves_no_workspace(folder):
    folder.runner.is_probe_interrupted = True
    assert folder.search().status is Status.INTERRUPTED
    assert folder.studies() == ["train"]
    assert workspaces(folder) == []


def test_a_search_that_is_left_at_once_is_interrupted_and_can_be_gone_on_with(folder):
    def measure(settings):
        if len(folder.runner.ran) == 2:
            raise KeyboardInterrupt
        return by_workers(settings)

    folder.runner.measure = measure
    with pytest.raises(KeyboardInterrupt):
        folder.search()
    with folder.repository() as repository:
        assert repository.study("train").status == "interrupted"
    folder.runner.measure = by_workers
    assert folder.resume().trials.total == 6


def test_a_setting_that_nobody_knows_leaves_the_name_free(folder):
    with pytest.raises(SearchSpaceError, match="num_wokers"):
        folder.search(ranges=(("num_wokers", "0..4"),))
    assert folder.studies() == []
    assert workspaces(folder) == []


def test_a_study_that_has_trials_stays_whatever_happens_next(folder):
    interrupted_after(folder, 2)
    folder.runner.measure = None
    with pytest.raises(TypeError):
        folder.resume()
    assert folder.studies() == ["train"]
    folder.runner.measure = by_workers
    assert folder.resume().trials.total == 6


def test_a_finished_study_is_not_searched_again(folder):
    first = folder.search()
    ran = len(folder.runner.ran)
    assert folder.resume().document() == first.document()
    with pytest.raises(StudyExistsError):
        folder.search()
    assert len(folder.runner.ran) == ran


# What has changed since


def test_code_that_changes_during_the_search_is_told_and_the_config_names_what_was_searched(folder):
    folder.runner.facts = replace(FACTS, modules=("torch", "model"))
    before = hashlib.sha256(folder.script.read_bytes()).hexdigest()

    def measure(settings):
        if len(folder.runner.ran) == 3:
            folder.script.write_text("import model  # edited\n")
            (folder.path / "model.py").write_text("width = 2\n")
        return by_workers(settings)

    folder.runner.measure = measure
    result = folder.search()
    (note,) = [note for note in result.notes if "several versions of the script" in note]
    assert "the script's file has changed; the module model, which the script imports, has changed" in note
    assert read_config(folder.path / "autotune.yaml").script.digest == before


def test_a_resume_repeats_no_trial_and_needs_no_probe(folder):
    interrupted_after(folder, 3)
    assert len(workspaces(folder)) == 1
    ran = len(folder.runner.ran)
    folder.resume()
    assert folder.runner.num_probes == 1
    own = folder.runner.ran[:ran] + folder.runner.ran[ran : ran + 3]
    assert len(set(own)) == 6


def test_a_resume_touches_no_folder_that_the_database_names(folder, tmp_path):
    interrupted_after(folder, 2)
    mine = tmp_path / f"autotune-{os.getuid()}" / "mine"
    for name in ("trials", "study"):
        (mine / name).mkdir(parents=True)
        (mine / name / "kept.txt").write_text("mine")
    mine.parent.chmod(0o700)
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE autotune_studies SET layer_folder = ?", [json.dumps(str(mine))])
    folder.resume()
    assert [(mine / name / "kept.txt").read_text() for name in ("trials", "study")] == ["mine", "mine"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: folder.script.write_text("import model  # edited\n"), "the script's file has changed"),
        (lambda folder: (folder.path / "model.py").write_text("width = 2\n"), "the module model, which the script"),
    ],
)
def test_a_resume_after_a_change_of_the_code_says_what_changed(folder, change, words):
    folder.runner.facts = replace(FACTS, modules=("torch", "model"))
    interrupted_after(folder, 2)
    ran = len(folder.runner.ran)
    change(folder)
    with pytest.raises(UsageError, match=words) as caught:
        folder.resume()
    assert "autotune search --study NAME" in caught.value.hint
    assert "--take-over" not in caught.value.hint
    assert len(folder.runner.ran) == ran


def test_a_resume_on_another_machine_says_what_is_different(folder, monkeypatch):
    interrupted_after(folder, 2)
    monkeypatch.setattr("autotune.study.target._torch_version", lambda: "9.9.9")
    with pytest.raises(UsageError, match=r"torch: 9\.9\.9, was "):
        folder.resume()


def test_a_resume_by_another_release_of_autotune_says_so(folder, monkeypatch):
    interrupted_after(folder, 2)
    monkeypatch.setattr("autotune.study.fingerprint.__version__", "9.9.9")
    with pytest.raises(UsageError, match=r"autotune: 9\.9\.9, was "):
        folder.resume()


def test_a_resume_whose_new_probe_sees_another_batch_does_not_mix(folder):
    interrupted_after(folder, 2)
    for workspace in workspaces(folder):
        (workspace / "complete").unlink()
    folder.runner.facts = replace(FACTS, loader=loader_facts(batch_size=32))
    ran = len(folder.runner.ran)
    with pytest.raises(UsageError, match="the script's own batch_size is 32, was 64") as caught:
        folder.resume()
    assert "--take-over train" in caught.value.hint
    assert len(folder.runner.ran) == ran
    assert folder.studies() == ["train"]


def test_a_resume_where_the_folder_of_the_study_is_not_says_so(folder):
    interrupted_after(folder, 2)
    folder.path.rename(folder.path.with_name("moved"))
    moved, folder.path = folder.path, folder.path.with_name("moved")
    with pytest.raises(UsageError, match=f"The folder {moved} of study 'train' is not there"):
        folder.resume()


def test_a_resume_makes_no_database_and_no_folder_for_one(folder):
    folder.database = folder.path / "studies" / "study.db"
    with pytest.raises(StoreError, match="There is no database"):
        folder.resume()
    assert not folder.database.parent.exists()


# A new study that takes over an old one's trials


def test_a_new_study_counts_the_trials_that_fit_and_measures_only_others(folder):
    folder.search()
    measured = set(folder.runner.ran)
    folder.runner.ran.clear()
    result = folder.search(study="more", take_over="train", max_trials=9)
    assert result.trials.total == 9
    with folder.repository() as repository:
        taken = [trial for trial in repository.trials("more") if trial.result.notes]
        assert [trial.result.notes[-1] for trial in taken] == [f"Measured as trial train/{n}." for n in range(6)]
        assert all(trial.optuna_told for trial in taken)
        trials = repository.trials("more")
        assert len({trial.settings for trial in trials}) == 9
    own = [settings for settings in folder.runner.ran if settings not in measured]
    assert len(set(own)) == 3
    assert "Taken over from study train: trials that fit 6, that do not 0." in folder.notices()


def test_settings_outside_of_the_new_space_do_not_fit(folder):
    folder.search()
    folder.search(study="narrow", take_over="train", fixed=(("num_workers", "0"),), max_trials=2)
    with folder.repository() as repository:
        assert {trial.settings.num_workers for trial in repository.trials("narrow")} == {0}
        num_fitting = sum(trial.settings.num_workers == 0 for trial in repository.trials("train"))
    assert (
        f"Taken over from study train: trials that fit {num_fitting}, that do not {6 - num_fitting}."
        in folder.notices()
    )


def test_under_a_smaller_cap_what_held_more_is_over_it(folder):
    folder.search()
    folder.search(study="small", take_over="train", memory_cap="260MiB")
    with folder.repository() as repository:
        for trial in repository.trials("small"):
            held_more = 200 + 50 * trial.settings.num_workers > 260
            assert (trial.result.outcome is Outcome.OVER_CAP) is held_more


def test_under_a_larger_cap_what_did_not_fit_is_tried_again(folder):
    folder.search(memory_cap="220MiB")
    with folder.repository() as repository:
        num_over = sum(trial.result.outcome is Outcome.OVER_CAP for trial in repository.trials("train"))
    assert num_over > 0
    folder.search(study="large", take_over="train", memory_cap=f"{1 << 30}B", max_trials=8)
    assert f"Taken over from study train: trials that fit {6 - num_over}, that do not {num_over}." in folder.notices()
    with folder.repository() as repository:
        outcomes = {trial.result.outcome for trial in repository.trials("large")}
    assert outcomes == {Outcome.OK}


def test_a_kill_in_the_middle_of_the_taking_over_takes_nothing_twice(folder, monkeypatch):
    folder.search()
    taken = []

    def dies(self, name, record):
        taken.append(record.number)
        if len(taken) == 3:
            raise KeyboardInterrupt
        return before(self, name, record)

    from autotune.store.repository import Repository

    before = Repository.record_trial
    monkeypatch.setattr(Repository, "record_trial", dies)
    with pytest.raises(KeyboardInterrupt):
        folder.search(study="more", take_over="train", max_trials=7)
    monkeypatch.setattr(Repository, "record_trial", before)
    assert folder.resume("more").trials.total == 7
    with folder.repository() as repository:
        assert [trial.number for trial in repository.trials("more")] == list(range(7))


def test_a_study_whose_older_study_was_deleted_goes_on_with_the_trials_taken_before(folder):
    folder.search()
    folder.runner.ran.clear()
    interrupted_after(folder, 1, study="more", take_over="train", max_trials=8)
    with folder.repository() as repository:
        repository.delete_study("train")
    assert folder.resume("more").trials.total == 8
    assert "Study train is gone: of its trials, those taken over before count." in folder.notices()


def test_a_study_of_another_script_is_not_taken_over(folder):
    folder.search()
    folder.script.write_text("import model  # edited\n")
    with pytest.raises(UsageError, match=r"Nothing of study 'train' can be taken over.*the script's file has changed"):
        folder.search(study="more", take_over="train")
    with pytest.raises(StudyNotFoundError):
        folder.search(study="more", take_over="trian")
    assert folder.studies() == ["train"]


def test_a_peak_is_judged_by_the_new_cap_and_refused_memory_only_by_a_smaller_one():
    from autotune.study.take_over import under_cap
    from tests.unit.report.examples import failed

    refused = failed(Outcome.OUT_OF_MEMORY, "CUDA out of memory")
    assert under_cap(refused, 100 * MIB, 200 * MIB) is refused
    assert under_cap(refused, 300 * MIB, 200 * MIB) is None
    assert under_cap(refused, 100 * MIB, None) is None
    assert under_cap(failed(Outcome.INTERRUPTED, ""), 100 * MIB, 200 * MIB) is None


def test_a_search_that_may_try_nothing_but_the_baseline_is_too_short_and_runs_no_finals(folder):
    result = folder.search(max_trials=1)
    assert result.status is Status.TOO_SHORT and result.status.exit_code == 0
    assert len(folder.runner.ran) == 1
    assert result.best is not None and result.best.samples_per_second == pytest.approx(100.0, rel=0.1)
    assert any("--time" in note and "--trials" in note for note in result.notes)


def test_a_search_of_two_trials_counts_them_as_the_first_round_of_the_finals(folder):
    result = folder.search(max_trials=2)
    assert len(folder.runner.ran) == 2 + 2 * 2
    with folder.repository() as repository:
        assert {final.round for final in repository.finals("train")} == {0, 1, 2}
    assert result.status in (Status.IMPROVED, Status.NO_GAIN)


def test_a_search_whose_only_rival_raced_out_was_too_short_and_says_how_much_time_is_enough(folder):
    measured = folder.runner.start

    def start(job):
        run = measured(job)
        if job.request.settings is None or job.request.settings == job.script_settings:
            return run
        return FinishedRun(None, replace(run.result(), outcome=Outcome.RACED_OUT))

    folder.runner.start = start
    result = folder.search(max_trials=2)
    assert result.status is Status.TOO_SHORT and result.status.exit_code == 0
    assert any("About --time" in note for note in result.notes)


def cut_by_the_time(folder):
    """A search whose time ends before the first trial; the runner then measures as usual."""
    measured = folder.runner.start

    def start(job):
        run = measured(job)
        if job.request.settings is None:
            return run
        time.sleep(0.5)
        return FinishedRun(None, TrialResult(outcome=Outcome.INTERRUPTED, reason="All the time was spent."))

    folder.runner.start = start
    result = folder.search(max_trials=None, budget_s=0.4)
    folder.runner.start = measured
    return result


def test_a_search_whose_time_ends_before_the_first_trial_is_too_short_and_says_how_much_time_is_enough(folder):
    result = cut_by_the_time(folder)
    assert result.status is Status.TOO_SHORT and result.status.exit_code == 0
    assert "is enough to compare one other setting with yours" in result.reason
    assert "--time" not in " ".join(result.notes)
    assert result.enough_s is not None and result.enough_s > 0.4


# More time


def test_a_study_that_was_too_short_goes_on_with_more_time_and_keeps_it(folder):
    short = cut_by_the_time(folder)
    folder.events.clear()
    result = folder.resume(budget_s=60.0, max_trials=4)
    assert short.status is Status.TOO_SHORT and result.status is Status.IMPROVED
    assert result.trials.total == 4 and result.wall_s > short.wall_s
    assert [event.budget_s for event in folder.events if isinstance(event, SearchStarted)] == [60.0]
    assert any(isinstance(event, FinalFinished) for event in folder.events)
    with folder.repository() as repository:
        stored = repository.study("train")
    assert (stored.spec.budget_s, stored.spec.max_trials, stored.status) == (60.0, 4, "improved")
    ran = len(folder.runner.ran)
    assert folder.resume().document() == result.document() and len(folder.runner.ran) == ran


def test_a_study_of_too_few_trials_goes_on_with_more_trials_and_repeats_none(folder):
    folder.search(max_trials=1)
    baseline = folder.runner.ran[0]
    result = folder.resume(max_trials=4)
    assert result.status is Status.IMPROVED and result.trials.total == 4
    assert len(set(folder.runner.ran[:4])) == 4 and folder.runner.ran[0] == baseline


def test_a_study_with_a_gain_goes_on_with_more_trials(folder):
    first = folder.search(max_trials=3)
    result = folder.resume(max_trials=6)
    assert first.trials.total == 3 and result.trials.total == 6 and result.status is Status.IMPROVED


def test_settings_queued_in_optunas_study_are_measured_by_the_next_resume(folder):
    folder.search(max_trials=2)
    queued = replace(folder.runner.ran[0], num_workers=2, prefetch_factor=8)
    study = optuna.load_study(study_name="train", storage=f"sqlite:///{folder.database}")
    study.enqueue_trial({"num_workers": 2, "prefetch_factor": 8})
    folder.resume(max_trials=3)
    assert folder.runner.ran.count(queued) >= 1
    with folder.repository() as repository:
        assert [trial.settings for trial in repository.trials("train")][2] == queued


def test_an_interrupted_study_goes_on_with_the_new_limit_also_later(folder):
    interrupted_after(folder, 2)
    stop = StopRequest()

    def measure(settings):
        if len(folder.runner.ran) == 4:
            stop.request()
        return by_workers(settings)

    folder.runner.measure = measure
    assert folder.resume(stop=stop, max_trials=8).status is Status.INTERRUPTED
    folder.runner.measure = by_workers
    assert folder.resume().trials.total == 8


def test_a_limit_that_is_spent_already_is_refused_and_changes_nothing(folder):
    first = folder.search(max_trials=2)
    with pytest.raises(UsageError) as told:
        folder.resume(budget_s=first.wall_s / 2)
    assert "has spent" in str(told.value) and "such as --time" in told.value.hint
    with pytest.raises(UsageError) as told:
        folder.resume(max_trials=2)
    assert "2 trials" in str(told.value) and "such as --trials 12" in told.value.hint
    with folder.repository() as repository:
        assert repository.study("train").spec == folder.spec(max_trials=2, storage=repository.url)
    assert folder.resume().document() == first.document()


def test_an_interrupted_extension_keeps_the_gain_and_its_config_and_goes_on(folder):
    first = folder.search(max_trials=3)
    config = (folder.path / "autotune.yaml").read_text()
    stop = StopRequest()

    def measure(settings):
        stop.request()
        return by_workers(settings)

    folder.runner.measure = measure
    assert folder.resume(stop=stop, max_trials=6).status is Status.INTERRUPTED
    with folder.repository() as repository:
        stored = repository.study("train")
    assert (stored.status, stored.result) == ("interrupted", first.document())
    assert (folder.path / "autotune.yaml").read_text() == config
    folder.runner.measure = by_workers
    assert folder.resume().trials.total == 6


@pytest.mark.parametrize("status", [Status.TOO_SHORT, Status.INTERRUPTED])
def test_only_a_run_without_an_answer_keeps_the_gain_from_before(folder, status):
    folder.search(max_trials=3)
    with folder.repository() as repository:
        gained = repository.study("train")
    assert keeps_gain(gained, status) and not keeps_gain(gained, Status.NO_GAIN)
    assert not keeps_gain(replace(gained, result=None), status)


def test_a_flag_of_one_resume_is_not_stored_with_its_new_limits(folder):
    folder.search(max_trials=2)
    folder.resume(max_trials=3, unprotected=True)
    with folder.repository() as repository:
        assert not repository.study("train").spec.unprotected


def test_a_refused_resume_leaves_limits_and_result_as_they_were(folder):
    first = folder.search(max_trials=2)
    folder.script.write_text("import model  # edited\n")
    with pytest.raises(UsageError):
        folder.resume(budget_s=2000.0)
    with folder.repository() as repository:
        stored = repository.study("train")
    assert stored.spec.budget_s == folder.spec().budget_s and stored.result == first.document()


def test_a_new_probe_that_fails_leaves_the_result_that_there_was(folder):
    first = folder.search(max_trials=2)
    folder.runner.probe_error = "the data are gone"
    with pytest.raises(EveryTrialFailedError):
        folder.resume(max_trials=4)
    folder.runner.probe_error = None
    with folder.repository() as repository:
        stored = repository.study("train")
    assert (stored.status, stored.result) == (first.status.value, first.document())
    assert folder.resume(max_trials=5).trials.total == 5


def test_a_resume_of_an_ended_study_says_that_nothing_is_run_and_how_it_goes_on(folder):
    result = cut_by_the_time(folder)
    assert folder.resume().status is Status.TOO_SHORT
    (notice,) = [words for words in folder.notices() if "has ended" in words]
    assert f"add --time {format_minutes(result.enough_s)}" in notice


def test_the_command_that_the_summary_names_goes_on_with_a_study_that_was_too_short(folder, monkeypatch, capsys):
    resumed = partial(searching.resume, open_runner=folder.open_runner)
    monkeypatch.setattr(searching, "resume", resumed)
    monkeypatch.chdir(folder.path)
    folder.search(max_trials=1)
    place = ("--storage", str(folder.database))
    assert main(["resume", "train", *place]) == 0
    said = capsys.readouterr()
    (line,) = [line for line in said.out.splitlines() if "Go on with more time: autotune resume" in line]
    words = line.partition("Go on with more time: autotune ")[2].split()
    assert words[:3] == ["resume", "train", "--time"] and "--trials" in words
    assert "has ended" in said.err and "add --time" in said.err
    assert main([*words[:-2], "--trials", "4", *place]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("These settings train") and "final 3:" in said.err
    with folder.repository() as repository:
        assert repository.study("train").status == "improved"


@pytest.mark.parametrize("has_instructions", [True, False])
def test_a_processor_with_instructions_for_bf16_has_that_format_tried_first(folder, monkeypatch, has_instructions):
    monkeypatch.setattr("autotune.study.target.has_bf16_instructions", lambda: has_instructions)
    folder.search(max_trials=2)
    with folder.repository() as repository:
        settings = [record.settings for record in repository.trials("train")]
    assert (settings[1].precision is Precision.BF16) is has_instructions
