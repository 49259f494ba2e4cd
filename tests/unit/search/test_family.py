"""Searches of simulated jobs: what holds for every one of them, and what a resumed search proposes."""

from __future__ import annotations

from statistics import median

import optuna
import pytest

from autotune.search.plan_state import PlanLimits
from autotune.search.search_stopping import NEIGHBOUR_STAGE, SAMPLED_STAGE
from autotune.search.study_search import Proposal, Search
from tests.benchmarks.search.family import random_workload
from tests.benchmarks.search.ours import autotune_stopping

NUM_TRIALS = 14


def open_search(workload, storage):
    limits = PlanLimits(
        usable_cpus=workload.usable_cpus, cap_bytes=workload.cap_bytes, fixed_bytes=workload.fixed_bytes
    )
    return Search(storage, "study", workload.space, limits, seed=1, max_trials=NUM_TRIALS, spend_all=True)


def run(workload, *, is_killed_each_time):
    storage = optuna.storages.InMemoryStorage()
    search, proposals = open_search(workload, storage), []
    while isinstance(proposal := search.ask(), Proposal):
        if is_killed_each_time:
            search = open_search(workload, storage)
            search.reap(lambda attributes: True)
            proposal = search.ask()
        search.tell(proposal.number, workload.run(proposal.settings, 1))
        proposals.append(proposal.settings)
    return search, proposals


@pytest.fixture(scope="module", params=[(5, "cpu"), (2, "cuda")], ids=["cpu", "cuda"])
def workload(request):
    return random_workload(*request.param)


def test_a_search_killed_in_every_trial_proposes_what_one_that_ran_through_did(workload):
    _, straight = run(workload, is_killed_each_time=False)
    search, killed = run(workload, is_killed_each_time=True)
    stages = {trial.stage for trial in search.history.trials}
    assert stages & {SAMPLED_STAGE, NEIGHBOUR_STAGE}  # the plan was over before
    assert killed == straight


def test_no_settings_are_tried_twice_and_the_best_is_no_worse_than_the_baseline(workload):
    search, proposals = run(workload, is_killed_each_time=False)
    assert len(set(proposals)) == len(proposals) == NUM_TRIALS
    best, baseline = search.history.best, search.baseline
    assert best.samples_per_second >= baseline.samples_per_second


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_search_from_the_best_settings_mostly_ends_after_a_handful_of_trials(device):
    runs = [autotune_stopping(random_workload(seed, device).solved(), seed=1, num_trials=40) for seed in (1, 2, 3)]
    assert median(run.num_trials for run in runs) <= 8
    assert all(run.regrets[-1] <= 0.02 for run in runs)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_cap_is_not_made_for_any_settings(device):
    for seed in range(4):
        workload = random_workload(seed, device)
        nearest = min(abs(workload.peak_bytes(point) / workload.cap_bytes - 1) for point in workload.grid())
        assert nearest > 1e-9
