"""Searches beside a neighbour: changes that may help only there are taken back in a trial."""

from __future__ import annotations

from dataclasses import replace

from autotune.model.outcome import Outcome
from autotune.search.beside_load import (
    STAGE,
    first_above_suspicion,
    is_suspect,
    with_alternative,
    without_changes_for_load,
)
from autotune.search.history import History
from autotune.settings import OmpWaitPolicy, changes_for_load
from tests.unit.search.test_blame import NATURAL, space_of
from tests.unit.search.test_forecast import trial

OWN = replace(NATURAL, num_workers=2, intra_op_threads=2)
ONE_THREAD = replace(OWN, intra_op_threads=1)
BOTH = replace(ONE_THREAD, num_workers=4)
CALM = replace(OWN, num_workers=4)
SPACE = replace(space_of(num_workers=(0, 2, 4), intra_op_threads=(1, 2)), script_settings=OWN)


def history(*trials, is_loaded=True):
    baseline = replace(trial(0, OWN, 130.0), is_beside_load=is_loaded)
    return History([baseline, *trials], OWN)


def test_fewer_threads_and_workers_and_passive_waiting_may_help_only_beside_load():
    fewer = replace(OWN, num_workers=0, intra_op_threads=1, omp_wait_policy=OmpWaitPolicy.PASSIVE)
    assert set(changes_for_load(fewer, OWN)) == {"num_workers", "intra_op_threads", "omp_wait_policy"}
    more = replace(OWN, num_workers=4, intra_op_threads=4, batch_size=64)
    assert changes_for_load(more, OWN) == ()
    assert changes_for_load(OWN, fewer) == ()


def test_the_leader_is_tried_without_the_changes_that_may_owe_their_worth_to_the_load():
    candidate = without_changes_for_load(history(trial(1, BOTH, 520.0)), SPACE)
    assert candidate is not None
    assert (candidate.settings, candidate.stage) == (CALM, STAGE)


def test_on_a_quiet_machine_fewer_threads_are_no_suspect():
    quiet = history(trial(1, BOTH, 520.0), is_loaded=False)
    assert not is_suspect(quiet.feasible[0], quiet.baseline)
    assert without_changes_for_load(quiet, SPACE) is None


def test_changes_that_the_user_asked_for_stay():
    asked = replace(space_of(num_workers=(0, 2, 4), intra_op_threads=(1,)), script_settings=OWN)
    assert without_changes_for_load(history(trial(1, BOTH, 520.0)), asked) is None
    fewer = replace(BOTH, omp_wait_policy=OmpWaitPolicy.PASSIVE)
    candidate = without_changes_for_load(history(trial(1, fewer, 520.0)), asked)
    assert candidate is not None and candidate.settings == BOTH


def test_nothing_more_is_tried_where_only_the_scripts_own_settings_are_left_or_all_is_tried():
    assert without_changes_for_load(history(trial(1, ONE_THREAD, 490.0)), SPACE) is None
    assert without_changes_for_load(history(trial(1, BOTH, 520.0), trial(2, CALM, 160.0)), SPACE) is None


def test_a_first_rival_above_suspicion_is_tried_at_once():
    candidate = first_above_suspicion(history(trial(1, BOTH, 520.0), trial(2, ONE_THREAD, 490.0)), SPACE)
    assert candidate is not None and candidate.settings == CALM
    quiet = history(trial(1, BOTH, 520.0), is_loaded=False)
    assert first_above_suspicion(quiet, SPACE) is None


def test_a_slower_rival_above_suspicion_does_not_stand_in_the_way():
    slower = trial(1, replace(OWN, prefetch_factor=4), 100.0)
    candidate = first_above_suspicion(history(slower, trial(2, BOTH, 520.0)), SPACE)
    assert candidate is not None and candidate.settings == CALM


def test_a_first_rival_above_suspicion_is_tried_once_whatever_comes_of_it():
    further = replace(BOTH, prefetch_factor=4)
    failed = replace(trial(2, CALM, outcome=Outcome.CRASHED), stage=STAGE)
    found = history(trial(1, BOTH, 520.0), failed, trial(3, further, 540.0))
    assert first_above_suspicion(found, SPACE) is None
    assert without_changes_for_load(found, SPACE) is not None, "at the end of the search"


def test_settings_that_stay_under_suspicion_by_what_was_asked_are_not_tried_early():
    asked = replace(space_of(num_workers=(0, 2, 4), intra_op_threads=(1,)), script_settings=OWN)
    passive = replace(BOTH, omp_wait_policy=OmpWaitPolicy.PASSIVE)
    assert first_above_suspicion(history(trial(1, passive, 520.0)), asked) is None


def test_with_a_rival_above_suspicion_the_leader_waits_for_the_end_of_the_search():
    calm = replace(OWN, prefetch_factor=4)
    found = history(trial(1, calm, 140.0), trial(2, BOTH, 520.0))
    assert first_above_suspicion(found, SPACE) is None
    assert without_changes_for_load(found, SPACE) is not None


def test_a_suspect_in_front_brings_the_fastest_trial_above_suspicion_along():
    leader, calm, slower = trial(1, BOTH, 520.0), trial(2, CALM, 160.0), trial(3, ONE_THREAD, 490.0)
    found = history(leader, calm, slower)
    assert [one.number for one in with_alternative([leader, slower], found)] == [1, 2, 3]
    quiet = history(leader, calm, slower, is_loaded=False)
    assert [one.number for one in with_alternative([leader, slower], quiet)] == [1, 3]
