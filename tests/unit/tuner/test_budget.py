from __future__ import annotations

from autotune.tuner.budget import NUM_FINALISTS, NUM_ROUNDS, Budget


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def test_time_of_earlier_runs_is_spent():
    clock = Clock()
    budget = Budget(100.0, 60.0, clock)
    clock.now_s += 15.0
    assert (budget.spent_s, budget.left_s) == (75.0, 25.0)


def test_time_left_is_never_negative():
    clock = Clock()
    budget = Budget(100.0, 0.0, clock)
    clock.now_s += 500.0
    assert budget.left_s == 0.0


def test_the_finals_are_reserved():
    clock = Clock()
    budget = Budget(600.0, 0.0, clock)
    for _ in range(4 * NUM_FINALISTS):
        budget.trial_took(10.0)
    reserve_s = NUM_ROUNDS * (1 + NUM_FINALISTS) * budget.final_s
    clock.now_s += 600.0 - reserve_s - 11.0
    assert budget.allows_trial()
    clock.now_s += 2.0
    assert not budget.allows_trial()


def test_the_first_trial_is_always_allowed():
    assert Budget(1.0, 5.0, Clock()).allows_trial()


def test_unsaved_time_is_what_passed_since_it_was_asked():
    clock = Clock()
    budget = Budget(100.0, 60.0, clock)
    clock.now_s += 3.0
    assert budget.unsaved_s() == 3.0
    clock.now_s += 2.0
    assert budget.unsaved_s() == 2.0


def test_a_short_search_spends_its_time_on_trials():
    clock = Clock()
    budget = Budget(600.0, 0.0, clock)
    budget.trial_took(10.0)
    clock.now_s += 600.0 - NUM_ROUNDS * 2 * budget.final_s - 11.0
    assert budget.allows_trial()


def test_as_many_finalists_as_the_time_allows():
    clock = Clock()
    budget = Budget(600.0, 0.0, clock)
    budget.trial_took(10.0)
    assert budget.affordable_finalists() == NUM_FINALISTS
    clock.now_s += 600.0 - NUM_ROUNDS * 3 * budget.final_s - 1.0
    assert budget.affordable_finalists() == 2
    clock.now_s += 1000.0
    assert budget.affordable_finalists() == 1
