"""The plan of a Keras script: its engine first, then its data where training waits for data."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.model.keras_facts import DataKind
from autotune.search.history import FinishedTrial, History
from autotune.search.plan import PlanFinished, plan
from autotune.search.plan_state import PlanLimits
from autotune.space.derive import derive_space
from autotune.space.search_space import SearchSpace
from autotune.units import GIB
from tests.unit.facts import cpu_machine, keras_script_facts, search_spec
from tests.unit.search.test_plan import trial

LIMITS = PlanLimits(usable_cpus=4.0, cap_bytes=64 * GIB)


def space_of(data: DataKind) -> SearchSpace:
    facts = keras_script_facts(data=data, installed_engines=("tensorflow", "jax"))
    return derive_space(facts, cpu_machine(cpus=4), search_spec())


def tried(space: SearchSpace, *, wait: float, most: int = 6) -> list[dict[str, Any]]:
    """Changes of the first trials after the baseline, where nothing is faster than the script's own settings."""
    own, trials = space.script_settings, list[FinishedTrial]()
    compute = 100.0 / (1 - wait)
    for number in range(most):
        step = plan(History(tuple(trials), own), space, LIMITS)
        if isinstance(step, PlanFinished):
            break
        rate = 100.0 if step.settings == own else 90.0
        trials.append(trial(number, step.settings, rate, compute=compute, wait=wait))
    changes = (each.settings.differences(own) for each in trials[1:])
    return [{name: value for name, (value, _) in change.items()} for change in changes]


def test_the_engine_comes_before_everything_else() -> None:
    assert tried(space_of(DataKind.ARRAYS), wait=0.0, most=2) == [{"keras_backend": "jax"}]


@pytest.mark.parametrize(("rate", "engine"), [(102.0, "tensorflow"), (120.0, "jax")])
def test_the_search_goes_on_with_another_engine_only_where_that_is_clearly_faster(rate: float, engine: str) -> None:
    space = space_of(DataKind.ARRAYS)
    own, trials = space.script_settings, list[FinishedTrial]()
    for number, trial_rate in enumerate((100.0, rate)):
        step = plan(History(tuple(trials), own), space, LIMITS)
        assert not isinstance(step, PlanFinished)
        trials.append(trial(number, step.settings, trial_rate, compute=200.0))
    step = plan(History(tuple(trials), own), space, LIMITS)
    assert not isinstance(step, PlanFinished)
    assert step.settings.keras_backend == engine and len(step.settings.differences(trials[-1].settings)) > 0


def test_a_dataset_in_python_that_training_waits_for_gets_processes_then_threads() -> None:
    first = tried(space_of(DataKind.PY_DATASET), wait=0.6, most=4)
    assert first[1:] == [{"dataset_workers": 4, "dataset_multiprocessing": True}, {"dataset_workers": 4}]


def test_tf_data_that_training_waits_for_gets_its_own_settings_before_the_number_format() -> None:
    names = [next(iter(change)) for change in tried(space_of(DataKind.TF_DATA), wait=0.6, most=4)]
    assert names[1:] == ["tf_data_prefetch", "tf_data_threads"]


def test_data_that_keeps_up_is_left_for_later() -> None:
    names = [next(iter(change)) for change in tried(space_of(DataKind.PY_DATASET), wait=0.0, most=3)]
    assert names[1:] == ["precision"]
