"""What comes after the plan: the trial that should gain most of those that may fit."""

from __future__ import annotations

from dataclasses import replace

from autotune.model.outcome import Outcome
from autotune.search.after_plan import AfterPlan
from autotune.search.history import FinishedTrial, History
from autotune.search.sampler import TpeSampler
from autotune.search.study_trials import StudySnapshot, StudyTrials
from autotune.search.walk import Candidate, PlanLimits
from autotune.settings import Settings
from autotune.space.space import SearchSpace
from autotune.units import GIB
from tests.benchmarks.search.family import make_space
from tests.unit.search.test_forecast import trial

OWN = Settings(num_workers=4, batch_size=32)
LIMITS = PlanLimits(usable_cpus=8.0, cap_bytes=8 * GIB)


def outlook(space: SearchSpace, *trials: FinishedTrial) -> Candidate:
    study = StudyTrials(None, "study", space, {})
    after_plan = AfterPlan(study, TpeSampler(space, 1), space, LIMITS)
    snapshot = StudySnapshot(finished=trials, running=(), gated={})
    found = after_plan.outlook(snapshot, History(trials, space.natural))
    assert found is not None
    return found


def test_where_the_loader_is_the_limit_nothing_is_expected_of_faster_compute():
    space = make_space(OWN, {"compile": (False, True), "prefetch_factor": (2, 8)}, device_is_cpu=False)
    loaders = [OWN, replace(OWN, prefetch_factor=8)]
    waiting = [trial(number, one, 100.0, compute=400.0, wait=0.7) for number, one in enumerate(loaders)]
    fed = [trial(number, one, 390.0, compute=400.0, wait=0.01) for number, one in enumerate(loaders)]
    assert outlook(space, *fed).expected_gain_ratio > 0.01
    assert outlook(space, *waiting).expected_gain_ratio == 0.0


def test_a_risk_is_worth_less_to_a_search_that_failed_often():
    space = make_space(OWN, {"compile": (False, True), "prefetch_factor": (2, 4, 8)}, device_is_cpu=False)
    calm = [trial(number, replace(OWN, prefetch_factor=2 << number), peak=7.9) for number in range(3)]
    lacking = [
        trial(3 + number, replace(OWN, num_workers=8 + number), outcome=Outcome.OUT_OF_MEMORY) for number in (0, 1)
    ]
    failed = [replace(one, lacks_host_memory=True) for one in lacking]
    assert outlook(space, *calm).expected_gain_ratio > outlook(space, *calm, *failed).expected_gain_ratio
