"""Which parameters matter, by Optuna's estimate."""

from __future__ import annotations

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import create_trial

from autotune.search.importance import MIN_TRIALS, importances

DISTRIBUTIONS = {name: CategoricalDistribution((0, 1, 2)) for name in ("workers", "luck", "never_varied")}


@pytest.fixture
def storage():
    return optuna.storages.InMemoryStorage()


def fill(storage, num_trials):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=storage, study_name="study", direction="maximize")
    for number in range(num_trials):
        params = {"workers": number % 3, "luck": number // 3 % 3, "never_varied": 0}
        study.add_trial(create_trial(value=100.0 * (number % 3), params=params, distributions=DISTRIBUTIONS))


def test_what_decides_the_rate_matters_most_and_what_never_varied_is_left_out(storage):
    fill(storage, 27)
    found = importances(storage, "study")
    assert list(found) == ["workers", "luck"]
    assert found["workers"] > 0.9 and sum(found.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("num_trials", [0, 1, MIN_TRIALS - 1])
def test_a_few_trials_say_nothing(storage, num_trials):
    fill(storage, num_trials)
    assert importances(storage, "study") == {}


def test_a_study_that_optuna_does_not_have_says_nothing(storage):
    assert importances(storage, "other") == {}
