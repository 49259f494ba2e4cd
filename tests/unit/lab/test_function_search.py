"""Searching callables: our own search and Optuna's samplers under the same baseline, space, constraints and budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
from optuna.samplers import RandomSampler, TPESampler

from autotune.errors import SearchSpaceError
from autotune.lab.function_runner import Measured
from autotune.lab.function_search import search_function
from autotune.lab.grid_space import enumerate_cells, recorded_space, space_over
from autotune.lab.replay import ReplayRunner
from autotune.model.outcome import Outcome
from autotune.settings import Settings
from tests.unit.grids import INTERRUPTED, grid, ok

NATURAL = Settings(batch_size=32)
SPACE = space_over(
    NATURAL,
    {"num_workers": range(9), "prefetch_factor": (2, 4), "precision": ("fp32", "bf16"), "batch_size": (32, 64, 128)},
)
SAMPLERS = [None, lambda: RandomSampler(seed=1), lambda: TPESampler(seed=1)]


def job(settings):
    """Four workers feed it; 128 samples in fp32 do not fit."""
    if settings.batch_size == 128 and settings.precision == "fp32":
        raise MemoryError("128 samples do not fit.")
    return 10.0 * min(1 + settings.num_workers, 5) * (2.0 if settings.precision == "bf16" else 1.0)


def search(make_sampler, function=job, space=SPACE, **options):
    sampler = make_sampler() if make_sampler is not None else None
    return search_function(function, space, **{"max_trials": 20, "usable_cpus": 8.0, "sampler": sampler, **options})


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_the_baseline_comes_first_and_no_settings_are_measured_twice(make_sampler):
    asked = []
    found = search(make_sampler, lambda settings: asked.append(settings) or job(settings))
    assert asked[0] == NATURAL.canonical(device_is_cpu=False) == found.baseline.settings
    assert len(asked) == len(set(asked)) == len(found.trials) == 20
    assert [trial.settings for trial in found.trials] == asked
    assert all(SPACE.why_not(settings) is None for settings in asked)


def test_our_own_search_finds_the_best_and_says_who_else_may_be():
    found = search(None)
    assert (found.best.samples_per_second, found.best.settings.precision) == (100.0, "bf16")
    assert found.finalists[0].samples_per_second == found.best.samples_per_second
    assert found.baseline not in found.finalists
    assert found.reason == "The 20 trials of the budget are spent."


@pytest.mark.parametrize("make_sampler", SAMPLERS[:2])
def test_a_budget_of_a_single_trial_is_told_in_the_singular(make_sampler):
    assert search(make_sampler, max_trials=1).reason == "The single trial of the budget is spent."


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_running_out_of_memory_is_an_ending_of_a_trial(make_sampler):
    found = search(
        make_sampler, lambda settings: job(settings) if settings.num_workers < 4 else job(NATURAL), max_trials=30
    )
    assert {trial.outcome for trial in found.trials} <= {Outcome.OK, Outcome.OUT_OF_MEMORY}
    assert found.best.outcome is Outcome.OK


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_the_cap_is_over_the_memory_that_the_callable_says(make_sampler):
    def hungry(settings):
        return Measured(samples_per_second=settings.batch_size, peak_memory_bytes=1000 * settings.batch_size)

    found = search(make_sampler, hungry, cap_bytes=64_000)
    assert found.best.settings.batch_size == 64
    assert all(trial.is_feasible == (trial.settings.batch_size <= 64) for trial in found.trials)


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_a_space_that_is_exhausted_ends_the_search(make_sampler):
    space = space_over(NATURAL, {"precision": ("fp32", "bf16"), "channels_last": (False, True)})
    found = search(make_sampler, lambda _: 1.0, space, max_trials=100)
    assert {trial.settings for trial in found.trials} == set(enumerate_cells(space).cells)


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_what_is_fixed_to_another_value_than_the_natural_one_holds_for_all_but_the_baseline(make_sampler):
    space = replace(SPACE, allowed={**SPACE.allowed, "precision": ("bf16",)})
    found = search(make_sampler, space=space, max_trials=30)
    assert {trial.settings.precision.value for trial in found.trials[1:]} == {"bf16"}
    assert found.baseline.settings.precision.value == "fp32"


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_ranges_that_leave_the_natural_values_out_hold_for_all_but_the_baseline(make_sampler):
    space = replace(SPACE, allowed={**SPACE.allowed, "num_workers": (2, 4)})
    found = search(make_sampler, space=space, max_trials=12)
    assert found.baseline.settings.num_workers == 0
    assert {trial.settings.num_workers for trial in found.trials[1:]} == {2, 4}


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_the_same_seed_gives_the_same_search(make_sampler):
    first, second = search(make_sampler, seed=3), search(make_sampler, seed=3)
    assert [trial.settings for trial in first.trials] == [trial.settings for trial in second.trials]


def test_a_callable_without_a_feasible_answer_has_no_best():
    def hopeless(_settings):
        raise MemoryError

    found = search(None, hopeless)
    assert found.best is None and found.baseline.outcome is Outcome.OUT_OF_MEMORY and found.finalists == ()


def test_errors_of_the_callable_go_through():
    with pytest.raises(KeyError):
        search(None, lambda settings: {}[settings])


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_a_recorded_grid_is_searched_like_any_callable(make_sampler):
    recorded = grid(repeats=2, deviation=0.02)
    runner = ReplayRunner(recorded, seed=7)
    space = recorded_space(recorded)
    found = search(make_sampler, runner.answer, space, cap_bytes=recorded.header.memory_cap_bytes, usable_cpus=4.0)
    assert {trial.settings for trial in found.trials} <= set(recorded.cells)
    assert recorded.is_within(found.best.settings)


def test_a_space_larger_than_the_recordings_raises_at_the_first_settings_outside():
    recorded = grid()
    space = space_over(recorded.cells[0], {"num_workers": (3,)}, device_is_cpu=True)
    with pytest.raises(SearchSpaceError, match="num_workers=3"):
        search(None, ReplayRunner(recorded).answer, space, cap_bytes=recorded.header.memory_cap_bytes)


def test_an_interrupted_trial_is_measured_again():
    answers = iter([INTERRUPTED, *[ok(1.0)] * 50])
    found = search(None, lambda _: next(answers), max_trials=3)
    assert [trial.outcome for trial in found.trials] == [Outcome.OK] * 3
