"""What single changes did elsewhere rules settings out."""

from __future__ import annotations

from dataclasses import replace

from autotune.model.outcome import Outcome
from autotune.search.effects import Effects
from autotune.search.history import FinishedTrial, History
from autotune.settings import Settings
from tests.benchmarks.search.family import make_space

SPACE = make_space(
    Settings(batch_size=64),
    {"num_workers": (0, 1, 2, 4), "batch_size": (8, 16, 32, 64), "compile": (False, True)},
    device_is_cpu=False,
)
OWN = SPACE.natural


def trial(number, settings, rate, outcome=Outcome.OK):
    return FinishedTrial(
        number=number,
        settings=settings,
        stage="",
        outcome=outcome,
        samples_per_second=rate,
        peak_memory_bytes=1,
        compute_samples_per_second=rate,
        data_wait_fraction=0.0,
        half_width_ratio=0.02,
    )


def hopeless(best: Settings, other: Settings, *trials: FinishedTrial) -> str | None:
    return Effects(History(trials, OWN), SPACE).hopeless_change(best, other)


def test_a_change_that_lost_a_fifth_elsewhere_is_hopeless_beside_other_settings():
    trials = [trial(0, OWN, 100.0), trial(1, replace(OWN, compile=True), 80.0)]
    best = replace(OWN, num_workers=2)
    assert hopeless(best, replace(best, compile=True), *trials) == "compile"
    assert hopeless(best, replace(best, num_workers=4), *trials) is None


def test_a_change_that_lost_once_and_gained_once_is_not_hopeless():
    fed = replace(OWN, num_workers=2)
    trials = [trial(0, OWN, 100.0), trial(1, replace(OWN, compile=True), 80.0)]
    trials += [trial(2, fed, 100.0), trial(3, replace(fed, compile=True), 120.0)]
    best = replace(OWN, num_workers=4)
    assert hopeless(best, replace(best, compile=True), *trials) is None


def test_a_number_beyond_one_that_lost_is_hopeless_too():
    trials = [trial(0, OWN, 100.0), trial(1, replace(OWN, batch_size=16), 50.0)]
    assert hopeless(OWN, replace(OWN, batch_size=8), *trials) == "batch_size"
    assert hopeless(OWN, replace(OWN, batch_size=32), *trials) is None


def test_the_bound_of_a_raced_out_trial_counts_against_it():
    trials = [trial(0, OWN, 100.0), trial(1, replace(OWN, compile=True), 85.0, Outcome.RACED_OUT)]
    assert hopeless(OWN, replace(OWN, compile=True, num_workers=1), *trials) == "compile"
