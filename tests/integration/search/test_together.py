"""Several tuners on one study, each on a machine of its own: threads that are told they are on different machines."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from autotune.errors import StudyExistsError
from autotune.model.search_result import Status
from autotune.store.records import Owner
from autotune.study import together, trial_loop
from tests.unit.study.whole_search import by_workers, folder

__all__ = ["folder"]

NUM_TRIALS = 14


def machine(name: str) -> Owner:
    """A tuner that seems to be on another machine: whether it lives, only its signs of life tell."""
    return Owner(host=name, boot_id=f"boot-{name}", pid=1, start_ticks=1)


@pytest.fixture
def on_machines(monkeypatch):
    """Runs each function in a thread, on a machine of its own; what each gave back, by machine."""
    here = threading.local()
    before = Owner.this_process
    monkeypatch.setattr(Owner, "this_process", lambda: getattr(here, "owner", None) or before())
    monkeypatch.setattr(together, "LOOK_EVERY_S", 0.02)

    def run(**functions):
        results = {}

        def work(name, function):
            here.owner = machine(name)
            try:
                results[name] = function()
            except Exception as error:
                results[name] = error

        threads = [threading.Thread(target=work, args=item) for item in functions.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        return results

    return run


def slowly(settings):
    time.sleep(0.03)
    return by_workers(settings)


def resume_when_probed(folder):
    with folder.repository() as repository:
        while "train" not in [study.name for study in repository.studies()] or not repository.study("train").facts:
            time.sleep(0.01)
    return folder.resume()


def test_tuners_of_several_machines_share_a_study_without_repeating_each_other(folder, on_machines):
    folder.runner.measure = slowly
    results = on_machines(
        first=lambda: folder.search(max_trials=NUM_TRIALS),
        second=lambda: resume_when_probed(folder),
        third=lambda: resume_when_probed(folder),
    )
    assert {type(result).__name__ for result in results.values()} == {"SearchResult"}, results
    documents = [result.document() for result in results.values()]
    assert documents[0] == documents[1] == documents[2]
    assert documents[0]["status"] == Status.IMPROVED.value
    with folder.repository() as repository:
        trials = repository.trials("train")
        assert len(trials) == len({trial.settings for trial in trials}) == NUM_TRIALS
        assert all(trial.optuna_told for trial in trials)
        finals = [(final.round, final.number) for final in repository.finals("train")]
        assert len(finals) == len(set(finals)) > 0
        assert repository.live_owners("train", now=datetime.now(UTC)) == ()
    num_finals = len(finals)
    assert len(folder.runner.ran) == NUM_TRIALS + num_finals


def test_what_a_machine_that_died_was_running_is_run_once_by_the_others(folder, on_machines, monkeypatch):
    """The second machine is lost in its third trial; its sign of life is old before the first one is through."""
    lost = threading.Event()

    def measure(settings):
        if Owner.this_process().host == "second" and len(folder.runner.ran) > 4:
            with folder.repository() as repository:
                long_ago = datetime.now(UTC) - timedelta(hours=1)
                repository.renew_lease("train", machine("second"), now=long_ago)
            lost.set()
            raise ConnectionAbortedError("the machine is gone")
        return slowly(settings)

    folder.runner.measure = measure
    # Whoever dies tells nobody.
    monkeypatch.setattr("autotune.study.open_study.OpenStudy._leave_after", lambda self, error: None)
    results = on_machines(first=lambda: folder.search(max_trials=NUM_TRIALS), second=lambda: resume_when_probed(folder))
    assert lost.is_set()
    assert isinstance(results["second"], ConnectionAbortedError)
    assert results["first"].trials.total == NUM_TRIALS
    with folder.repository() as repository:
        trials = repository.trials("train")
        assert len(trials) == len({trial.settings for trial in trials}) == NUM_TRIALS


def test_a_second_tuner_on_one_machine_is_refused(folder, on_machines):
    refused = []

    def measure(settings):
        if not refused:
            beside = replace(machine("first"), host="container", pid=2)
            refused.append(beside)
            with folder.repository() as repository, pytest.raises(StudyExistsError, match="process 1 on first"):
                repository.acquire_lease("train", beside, now=datetime.now(UTC))
        return by_workers(settings)

    folder.runner.measure = measure
    results = on_machines(first=lambda: folder.search())
    assert results["first"].status is Status.IMPROVED
    assert len(refused) == 1


def test_a_tuner_that_lost_its_lease_ends_with_a_sentence_and_leaves_the_study_to_the_other(
    folder, on_machines, monkeypatch
):
    monkeypatch.setattr(trial_loop, "RENEW_EVERY_S", 0.0)
    other = replace(machine("first"), pid=2)
    start = folder.runner.start

    def start_slowly(job):
        run = start(job)
        polls = iter([False])
        run.poll = lambda: next(polls, True)
        return run

    def measure(settings):
        if len(folder.runner.ran) == 4:
            with folder.repository() as repository:
                repository.release_lease("train", machine("first"))
                repository.acquire_lease("train", other, now=datetime.now(UTC))
        return by_workers(settings)

    folder.runner.start, folder.runner.measure = start_slowly, measure
    lost = on_machines(first=lambda: folder.search(max_trials=NUM_TRIALS))["first"]
    assert isinstance(lost, StudyExistsError) and lost.exit_code == 2, lost
    assert "was taken over from process 1 on first by another tuner" in lost.message
    with folder.repository() as repository:
        assert repository.live_owners("train", now=datetime.now(UTC)) == (other,), "the other's lease stays"
