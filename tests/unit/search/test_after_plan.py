"""What comes after the plan: the trial that should gain most of those that may fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from autotune.lab.grid_space import space_over
from autotune.model.outcome import Outcome
from autotune.search.after_plan import AfterPlan
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import Candidate, PlanLimits
from autotune.search.sampler import TpeSampler
from autotune.search.study_trials import StudySnapshot, StudyTrials
from autotune.settings import Settings
from autotune.space.derive import derive_space
from autotune.space.search_space import SearchSpace
from autotune.units import GIB
from tests.benchmarks.search.family import make_space
from tests.unit.facts import gpu_machine, loader_facts, script_facts, search_spec
from tests.unit.search.test_forecast import trial

OWN = Settings(num_workers=4, batch_size=32)
LIMITS = PlanLimits(usable_cpus=8.0, cap_bytes=8 * GIB)


def outlook(
    space: SearchSpace,
    *trials: FinishedTrial,
    gated: Mapping[int, Settings] | None = None,
    limits: PlanLimits = LIMITS,
) -> Candidate:
    found = outlook_or_none(space, *trials, gated=gated, limits=limits)
    assert found is not None
    return found


def outlook_or_none(
    space: SearchSpace,
    *trials: FinishedTrial,
    gated: Mapping[int, Settings] | None = None,
    limits: PlanLimits = LIMITS,
) -> Candidate | None:
    study = StudyTrials(None, "study", space, {})
    after_plan = AfterPlan(study, TpeSampler(space, 1), space, limits)
    snapshot = StudySnapshot(finished=trials, running=(), gated=gated or {})
    return after_plan.outlook(snapshot, History(trials, space.script_settings))


def test_where_the_loader_is_the_limit_nothing_is_expected_of_faster_compute():
    space = make_space(OWN, {"compile": (False, True), "prefetch_factor": (2, 8)}, device_is_cpu=False)
    loaders = [OWN, replace(OWN, prefetch_factor=8)]
    waiting = [trial(number, one, 100.0, compute=400.0, wait=0.7) for number, one in enumerate(loaders)]
    fed = [trial(number, one, 390.0, compute=400.0, wait=0.01) for number, one in enumerate(loaders)]
    assert outlook(space, *fed).expected_gain_ratio > 0.01
    assert outlook(space, *waiting).expected_gain_ratio == 0.0


def test_cudnns_search_is_next_once_the_loader_keeps_up_with_what_computes():
    space = make_space(OWN, {"num_workers": (4, 8), "cudnn_benchmark": (False, True)}, device_is_cpu=False)
    waiting = trial(0, OWN, 100.0, compute=300.0, wait=0.6)
    fed = trial(1, replace(OWN, num_workers=8), 290.0, compute=300.0, wait=0.01)
    assert outlook(space, waiting, fed).settings == replace(OWN, num_workers=8, cudnn_benchmark=True)


def test_on_a_gpu_a_batch_is_split_once_and_only_where_a_change_needs_the_memory():
    changes = {"split": tuple(range(6)), "cudnn_benchmark": (False, True)}
    space = make_space(OWN, changes, device_is_cpu=False)
    wide, half = replace(OWN, cudnn_benchmark=True), {"batch_size": 16, "grad_accum_steps": 2}
    first = trial(0, OWN, 100.0)
    assert outlook(space, first).settings == wide
    too_large = trial(1, wide, outcome=Outcome.OUT_OF_MEMORY)
    assert outlook(space, first, too_large).settings == replace(wide, **half)
    assert outlook_or_none(space, first, trial(1, wide, 120.0)) is None


def test_a_split_is_no_rival_of_the_whole_where_the_whole_cannot_run_or_thrashes():
    changes = {"split": tuple(range(6)), "cudnn_benchmark": (False, True)}
    space = make_space(OWN, changes, device_is_cpu=False)
    wide, half = replace(OWN, cudnn_benchmark=True), {"batch_size": 16, "grad_accum_steps": 2}
    thrashing = replace(trial(1, wide, 120.0), is_near_cap=True)
    assert outlook(space, trial(0, OWN, 100.0), thrashing).settings == replace(wide, **half)
    space = make_space(OWN, {"split": tuple(range(6)), "num_workers": (4, 8)}, device_is_cpu=False)
    space = replace(space, shm_free_bytes=600_000, sample_bytes=1000.0)
    more = replace(OWN, num_workers=8)
    assert space.why_not(more) is not None and space.why_not(replace(more, **half)) is None
    assert outlook(space, trial(0, OWN, 100.0, compute=300.0, wait=0.7)).settings == replace(more, **half)


def test_the_next_micro_batch_that_was_asked_for_is_tried_however_much_smaller():
    asked = search_spec(ranges=(("batch_size", "8,64"),))
    space = derive_space(script_facts(loader=loader_facts(batch_size=64)), gpu_machine(), asked)
    assert outlook(space, trial(0, space.script_settings, 100.0)).settings.batch_size == 8


def test_a_risk_is_worth_less_to_a_search_that_failed_often():
    space = make_space(OWN, {"compile": (False, True), "prefetch_factor": (2, 4, 8)}, device_is_cpu=False)
    calm = [trial(number, replace(OWN, prefetch_factor=2 << number), peak=7.9) for number in range(3)]
    lacking = [
        trial(3 + number, replace(OWN, num_workers=8 + number), outcome=Outcome.OUT_OF_MEMORY) for number in (0, 1)
    ]
    failed = [replace(one, lacks_host_memory=True) for one in lacking]
    assert outlook(space, *calm).expected_gain_ratio > outlook(space, *calm, *failed).expected_gain_ratio


@pytest.mark.parametrize(("reachable_gib", "size"), [(None, 128), (7.5, 64)])
def test_a_micro_batch_beyond_the_allocators_limit_is_not_tried(reachable_gib, size):
    """128 samples take 7.8 of 8 GiB, of which the allocator may reach less."""
    space = make_space(OWN, {"batch_size": (32, 64, 128)}, device_is_cpu=False)
    reachable = None if reachable_gib is None else reachable_gib * GIB
    limits = replace(LIMITS, fixed_estimate_bytes=0.2 * GIB, reachable_bytes=reachable)
    found = outlook(space, trial(0, OWN, peak=2.1), limits=limits)
    assert found.settings.batch_size == size


def test_where_many_settings_are_alike_the_next_trial_is_a_change_that_may_gain_much():
    switches = ("pin_memory", "non_blocking", "channels_last", "cudnn_benchmark")
    allowed = dict.fromkeys((*switches, "compile"), (False, True))
    space = make_space(OWN, {**allowed, "batch_size": (16, 32)}, device_is_cpu=False)
    some = list(product((False, True), repeat=len(switches)))[:10]
    alike = [replace(OWN, **dict(zip(switches, one, strict=True))) for one in some]
    trials = [trial(n, one, 100.0 + n % 3, peak=4.0) for n, one in enumerate(alike)]
    smaller = trial(10, replace(OWN, batch_size=16), 90.0, peak=2.5)
    too_large = trial(11, replace(OWN, compile=True), outcome=Outcome.OUT_OF_MEMORY)
    assert outlook(space, *trials, smaller, too_large).settings.compile


def test_a_trial_changes_nothing_of_which_little_is_expected():
    """A dozen untried switches promise a little each; tried together with what matters they say nothing of it."""
    switches = ("pin_memory", "non_blocking", "cudnn_benchmark", "channels_last", "persistent_workers", "in_order")
    allowed = {**dict.fromkeys((*switches, "compile"), (False, True)), "prefetch_factor": (1, 2, 4, 8)}
    own = replace(OWN, in_order=False)
    fastest = replace(own, channels_last=True, num_workers=8)
    space = make_space(own, {**allowed, "num_workers": (2, 4, 8)}, device_is_cpu=False)
    trials = [trial(0, own, 100.0, compute=110.0, wait=0.1), trial(1, fastest, 120.0, compute=130.0, wait=0.02)]
    assert outlook(space, *trials).settings == replace(fastest, compile=True)


ROOMY = {"batch_size": (8, 16, 32), "cudnn_benchmark": (False, True)}
SIZES = [(8, False, 2.3), (8, True, 2.41), (16, True, 4.33)]
"""Micro-batches with and without workspaces and their peaks; 32 need 8.2 or 7.8 GiB of 8 GiB."""


@pytest.mark.parametrize("gated", [{}, {3: OWN}])
def test_a_line_through_trials_with_workspaces_does_not_rule_out_what_may_fit_without(gated):
    trials = [
        trial(n, replace(OWN, batch_size=size, cudnn_benchmark=is_on), 3.0 * size, peak=peak)
        for n, (size, is_on, peak) in enumerate(SIZES)
    ]
    found = outlook(make_space(OWN, ROOMY, device_is_cpu=False), *trials, gated=gated)
    assert found.settings == replace(OWN, batch_size=32)


def test_what_takes_room_is_looked_at_together_with_what_makes_it():
    names = ("compile", "cudnn_benchmark", "pin_memory", "non_blocking", "channels_last")
    allowed = {**dict.fromkeys(names, (False, True)), "precision": ("fp32", "bf16"), "batch_size": (16, 32)}
    own = replace(OWN, precision="bf16", cudnn_benchmark=True)
    # fp32 is fast here, and at this micro-batch only fits compiled. Three switches that nobody tried lead elsewhere.
    rated = [
        ({}, 100.0, 7.7),
        ({"cudnn_benchmark": False}, 99.0, 7.5),
        ({"prefetch_factor": 4}, 99.0, 7.7),
        ({"prefetch_factor": 8}, 99.0, 7.7),
        ({"compile": True}, 93.0, 5.0),
        ({"compile": True, "cudnn_benchmark": False}, 92.0, 4.9),
        ({"batch_size": 16}, 60.0, 4.5),
        ({"batch_size": 16, "precision": "fp32"}, 90.0, 6.5),
    ]
    too_large = [{"precision": "fp32"}, {"precision": "fp32", "cudnn_benchmark": False}]
    trials = [trial(n, replace(own, **changes), rate, peak=peak) for n, (changes, rate, peak) in enumerate(rated)]
    trials += [trial(8 + n, replace(own, **one), outcome=Outcome.OUT_OF_MEMORY) for n, one in enumerate(too_large)]
    found = outlook(make_space(own, allowed, device_is_cpu=False), *trials).settings
    assert (found.compile, found.precision, found.batch_size) == (True, "fp32", 32)


def test_a_space_that_lacks_all_that_takes_room_is_searched_all_the_same():
    space = space_over(OWN, {"num_workers": (1, 2, 4)})
    trials = [trial(0, OWN), trial(1, replace(OWN, num_workers=2), 90.0)]
    assert outlook(space, *trials).settings == replace(OWN, num_workers=1)
