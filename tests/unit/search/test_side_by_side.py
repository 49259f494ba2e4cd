"""Two tuners that search one study at once: no settings are measured by both, and none waits for the other."""

from __future__ import annotations

from dataclasses import replace

import optuna
import pytest

from autotune.model.outcome import Outcome
from autotune.search.plan_state import PlanLimits
from autotune.search.study_search import Proposal, Search, SearchExhausted
from autotune.space.derive import derive_space
from autotune.units import GIB
from tests.unit.facts import gpu_machine, script_facts, search_spec
from tests.unit.search.test_study_search import result

CAP_BYTES = 8 * GIB


@pytest.mark.parametrize("num_before", [0, 3])
def test_the_last_trial_of_the_budget_is_started_by_one_of_two_tuners_that_both_see_it_left(num_before):
    storage, max_trials = optuna.storages.InMemoryStorage(), num_before + 1
    first, second = (_open(storage, max_trials) for _ in range(2))
    for _ in range(num_before):
        first.tell(first.ask().number, result(Outcome.OK, peak=2 * GIB))
    start, taken = first._trials.start, []

    def start_another_after_the_other(candidate, *args):
        if not taken:
            taken.append(second.ask())
        settings = replace(candidate.settings, memory_fraction=0.4)
        return start(replace(candidate, settings=settings), *args)

    first._trials.start = start_another_after_the_other
    assert isinstance(first.ask(), SearchExhausted)
    assert isinstance(taken[0], Proposal)


def _open(storage, max_trials=12):
    space = derive_space(
        script_facts(device="cuda"), gpu_machine(), search_spec(ranges=(("memory_fraction", "0.4,0.5,0.6,0.9"),))
    )
    limits = PlanLimits(usable_cpus=4.0, cap_bytes=CAP_BYTES)
    return Search(storage, "study", space, limits, seed=3, max_trials=max_trials, spend_all=True)


def test_an_interrupted_trial_is_run_again_within_the_budget_while_another_tuner_asks():
    """The other tuner looks before the trial is queued again, and starts another trial before the queue is emptied."""
    storage, asked, taken, started = optuna.storages.InMemoryStorage(), [], [], []
    first, second = (_open(storage, max_trials=3) for _ in range(2))
    for _ in range(2):
        first.tell(first.ask().number, result(Outcome.OK, peak=2 * GIB))
    last = second.ask()
    add, start, pop = second._trials._add, first._trials.start, second._trials.start_queued

    def add_after_the_other_has_looked(*queued):
        def start_after_the_second_has_looked(candidate, *args):
            add(*queued)
            settings = replace(candidate.settings, memory_fraction=0.4)
            start_now = lambda: started.append(start(replace(candidate, settings=settings), *args))  # noqa: E731
            second._trials.start_queued = lambda *given: (start_now(), pop(*given))[1]
            taken.append(second.ask())
            return started[0]

        first._trials.start = start_after_the_second_has_looked
        asked.append(first.ask())

    second._trials._add = add_after_the_other_has_looked
    second.tell(last.number, result(Outcome.INTERRUPTED))
    assert taken[0].settings == last.settings
    assert started == [None] and isinstance(asked[0], SearchExhausted), "the queued trial has the budget's last place"


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.INTERRUPTED])
def test_a_tuner_whose_trial_is_reaped_at_its_end_goes_on_without_an_error(outcome):
    first, second = (_open(storage) for storage in [optuna.storages.InMemoryStorage()] * 2)
    trial = first.ask()
    note = first._trials._set_attrs

    def note_after_the_other_reaped(*args):
        first._trials._set_attrs = note
        assert second.reap(lambda attrs: True) == (trial.number,)
        note(*args)

    first._trials._set_attrs = note_after_the_other_reaped
    first.tell(trial.number, result(outcome, peak=2 * GIB))
    again = second.ask()
    assert (again.settings, again.number) == (trial.settings, trial.number + 1), "queued once, and counted once"
    assert not isinstance(first.ask(), SearchExhausted) and first.num_finished == 0
