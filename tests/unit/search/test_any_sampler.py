"""An Optuna sampler in place of our search: what it is told, and what it is kept from suggesting."""

from __future__ import annotations

import optuna
import pytest
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from autotune.lab.grid_space import space_over
from autotune.model.outcome import Outcome
from autotune.search.any_sampler import SamplerSearch
from autotune.search.plan_state import PlanLimits
from autotune.search.study_search import Proposal, SearchExhausted
from autotune.settings import Settings
from tests.unit.grids import CAP_BYTES, INTERRUPTED, ok, over_cap

LIMITS = PlanLimits(usable_cpus=4.0, cap_bytes=CAP_BYTES)
SPACE = space_over(Settings(batch_size=8), {"batch_size": (8, 16, 32, 64), "precision": ("fp32", "bf16")})


class Watched(RandomSampler):
    """Notes the study that it is asked about."""

    study: optuna.Study | None = None

    def sample_relative(self, study, trial, search_space):
        self.study = study
        return super().sample_relative(study, trial, search_space)


class Stubborn(RandomSampler):
    """Suggests the same again and again."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        return 0 if param_name == "batch_size" else "fp32"


def search(sampler: BaseSampler, max_trials: int = 6) -> SamplerSearch:
    return SamplerSearch(sampler, SPACE, LIMITS, seed=1, max_trials=max_trials)


def answer(settings):
    return over_cap() if settings.batch_size > 16 else ok(float(settings.batch_size))


def run(found: SamplerSearch) -> list[Proposal]:
    proposals = []
    while isinstance(proposal := found.ask(), Proposal):
        found.tell(proposal.number, answer(proposal.settings))
        proposals.append(proposal)
    return proposals


def test_the_sampler_is_told_rates_and_constraints_as_our_own_search_tells_them():
    sampler = Watched(seed=3)
    run(search(sampler))
    complete = sampler.study.get_trials(states=[TrialState.COMPLETE])
    assert complete[0].params == {"batch_size": 0, "precision": "fp32"}
    for trial in complete:
        size = (8, 16, 32, 64)[trial.params["batch_size"]]
        is_over = size > 16
        assert trial.value == (0.0 if is_over else size)
        assert (trial.constraints["memory"] > 0) == is_over and trial.constraints["valid"] == -1.0


def test_what_the_memory_model_rules_out_is_not_measured():
    proposals = run(search(RandomSampler(seed=0), max_trials=8))
    over = [p.settings.batch_size for p in proposals if p.settings.batch_size > 16 and p.settings.precision == "fp32"]
    assert over != [] and sorted(over, reverse=True) == over  # after 32 was over the cap, 64 is not tried


def test_a_sampler_that_repeats_itself_is_helped_by_random_draws():
    proposals = run(search(Stubborn(seed=0), max_trials=4))
    assert len({p.settings for p in proposals}) == 4
    assert proposals[0].stage == "baseline"


def test_the_budget_is_counted_in_trials_and_an_ended_search_stays_ended():
    found = search(RandomSampler(seed=0), max_trials=2)
    assert len(run(found)) == 2
    assert isinstance(found.ask(), SearchExhausted)
    assert [trial.number for trial in found.history.trials] == [0, 1]
    assert found.baseline is not None and found.baseline.outcome is Outcome.OK


def test_an_interrupted_trial_is_nothing_to_be_told():
    found = search(RandomSampler(seed=0))
    proposal = found.ask()
    with pytest.raises(ValueError, match="interrupted"):
        found.tell(proposal.number, INTERRUPTED)
