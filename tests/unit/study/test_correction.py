"""Searches whose first trial shows other settings than the probe: they go on from what that trial ran with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.emit.tuned_config import read_config
from autotune.lab.function_runner import evaluate
from autotune.model.events import TrialFinished
from autotune.model.outcome import Outcome
from autotune.model.search_result import Status
from autotune.search.study_search import Search
from autotune.store.repository import Repository
from autotune.study.stop import StopRequest
from tests.unit.facts import loader_facts
from tests.unit.runner.samples import rank
from tests.unit.study.whole_search import FACTS, by_workers, folder

__all__ = ["folder"]

SEEN = {"channels_last": "True", "intra_op_threads": "7"}
"""What the script runs with: a value that every study knows, and one that none does before it is seen."""


def in_force(settings, seen=SEEN):
    """A trial that shows what the script does by itself wherever the settings leave it alone."""
    result = evaluate(by_workers, settings, 4 << 30)
    shown = {"num_workers": str(settings.num_workers), **seen}
    return replace(result, ranks=(rank(observed=shown),))


@pytest.fixture
def misreads(folder):
    folder.runner.measure = in_force
    return folder


def baseline(folder, study="train"):
    with folder.repository() as repository:
        return repository.study(study), repository.trials(study)


def test_the_first_trial_counts_under_what_it_ran_with(misreads):
    result = misreads.search()
    assert result.status is Status.IMPROVED
    study, trials = baseline(misreads)
    assert (study.script_settings.channels_last, study.script_settings.intra_op_threads) == (True, 7)
    assert trials[0].settings == result.baseline.settings == study.script_settings
    assert trials[0].result.outcome is Outcome.OK
    assert [trial.number for trial in trials] == list(range(6))
    assert len({trial.settings for trial in trials}) == 6
    assert misreads.runner.ran[0] != study.script_settings, (
        "the baseline was measured once, before its settings were known"
    )
    assert study.script_settings not in misreads.runner.ran[:6]


def test_the_correction_is_told_stored_and_in_the_config(misreads):
    result = misreads.search()
    told = (
        "Your script's own settings are channels_last=true, intra_op_threads=7, as its first trial shows; the probe "
        "had read channels_last=false, intra_op_threads=2."
    )
    assert told in misreads.notices()
    study, trials = baseline(misreads)
    assert told in trials[0].result.notes
    assert dict(study.facts.baseline_readings) == SEEN
    config = read_config(misreads.path / "autotune.yaml")
    assert config.script.natural == study.script_settings
    assert config.settings == result.best.settings
    first = next(event for event in misreads.events if isinstance(event, TrialFinished))
    assert first.number == 0 and first.settings == study.script_settings


def test_the_space_follows_and_what_the_script_does_itself_can_be_tried_the_other_way(misreads):
    misreads.search(ranges=(("channels_last", "false,true"),), fixed=(("num_workers", "0"),), max_trials=8)
    _, trials = baseline(misreads)
    assert any(not trial.settings.channels_last for trial in trials[1:])
    assert all(trial.result.outcome is Outcome.OK for trial in trials)


def test_a_search_whose_probe_was_right_is_not_corrected(folder):
    folder.runner.measure = lambda settings: in_force(settings, {"intra_op_threads": "2", "channels_last": "False"})
    folder.search()
    study, _ = baseline(folder)
    assert study.facts.baseline_readings == ()
    assert not any("first trial shows" in message for message in folder.notices())


@pytest.mark.parametrize("num_trials", [1, 2, 3])
def test_a_resume_sees_the_same_baseline(misreads, num_trials):
    stop = StopRequest()

    def measure(settings):
        if len(misreads.runner.ran) == num_trials:
            stop.request()
        return in_force(settings)

    misreads.runner.measure = measure
    assert misreads.search(stop=stop).status is Status.INTERRUPTED
    before, _ = baseline(misreads)
    misreads.runner.measure = in_force
    result = misreads.resume()
    after, trials = baseline(misreads)
    assert misreads.runner.num_probes == 1
    assert after.script_settings == before.script_settings == trials[0].settings == result.baseline.settings
    assert result.trials.total == 6


@pytest.mark.parametrize(
    ("owner", "name"), [(Search, "begin_anew"), (Search, "ask"), (Repository, "record_trial"), (Search, "tell")]
)
def test_a_tuner_that_is_killed_in_the_middle_of_the_correction_goes_on_with_it(misreads, monkeypatch, owner, name):
    original, has_measured = getattr(owner, name), lambda: bool(misreads.runner.ran)

    def dies(*args, **kwargs):
        if has_measured():
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(KeyboardInterrupt):
            misreads.search()
    assert len(misreads.runner.ran) == 1
    result = misreads.resume()
    study, trials = baseline(misreads)
    assert study.script_settings.intra_op_threads == 7
    assert result.baseline.settings == study.script_settings == trials[0].settings
    assert result.trials.total == 6


def test_a_new_probe_of_the_study_keeps_what_the_first_trial_showed(misreads):
    stop = StopRequest()

    def measure(settings):
        if len(misreads.runner.ran) == 2:
            stop.request()
        return in_force(settings)

    misreads.runner.measure = measure
    misreads.search(stop=stop)
    for complete in misreads.path.parent.glob("space/*/*/complete"):
        complete.unlink()
    misreads.runner.measure = in_force
    result = misreads.resume()
    assert misreads.runner.num_probes == 2
    assert result.baseline.settings.intra_op_threads == 7


def test_a_study_that_takes_over_a_corrected_one_begins_with_its_baseline(misreads):
    misreads.search()
    num_ran = len(misreads.runner.ran)
    result = misreads.search(study="more", take_over="train", max_trials=8)
    study, trials = baseline(misreads, "more")
    assert study.script_settings.intra_op_threads == 7
    assert result.baseline.settings == study.script_settings == trials[0].settings
    assert study.script_settings not in misreads.runner.ran[num_ran : num_ran + 2]


def test_a_correction_that_the_users_wishes_forbid_leaves_the_trial_as_it_was(folder):
    folder.runner.facts = replace(FACTS, loader=loader_facts())
    folder.runner.measure = lambda settings: in_force(settings, {"precision": "bf16"})
    result = folder.search(ranges=(("precision", "fp32"),), max_trials=3)
    study, trials = baseline(folder)
    assert trials[0].result.outcome is Outcome.OK
    assert study.facts.baseline_readings == ()
    assert result.status in (Status.IMPROVED, Status.NO_GAIN)
