"""Guilty settings, found from made-up trials: no process is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from autotune.lab.function_runner import evaluate
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.search.blame import changes_of, investigate, without
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import PlanLimits
from autotune.search.search_stopping import AFTER_PLAN
from autotune.search.study_search import Search, SearchExhausted
from autotune.settings import DOMAINS, Precision, Settings
from autotune.space.derive import derive_space
from autotune.space.search_space import SPLIT, SearchSpace, divisors_of
from tests.unit.facts import gpu_machine, script_facts, search_spec

NATURAL = Settings(batch_size=32, intra_op_threads=4)
JUMP: dict[str, Any] = {
    "num_workers": 8,
    "prefetch_factor": 4,
    "persistent_workers": True,
    "pin_memory": True,
    "precision": Precision.BF16,
    "cudnn_benchmark": True,
    "channels_last": True,
    "non_blocking": True,
}


def space_of(**allowed: tuple[Any, ...]) -> SearchSpace:
    domains = {**DOMAINS, SPLIT: tuple(range(len(divisors_of(32))))}
    return SearchSpace(
        script_settings=NATURAL,
        domains=domains,
        allowed={**domains, **allowed},
        refused=(),
        device_is_cpu=False,
        batch_per_device=32,
    )


class Script:
    """A script that fails under some settings, and the trials of it that there are.

    Args:
        fails: Why it fails under settings that differ so from its own; empty when it does not.
    """

    def __init__(self, fails: Callable[[Mapping[str, Any]], str], outcome: Outcome = Outcome.CRASHED) -> None:
        self.fails, self.outcome = fails, outcome
        self.trials: list[FinishedTrial] = []
        self.tried: list[dict[str, Any]] = []
        self.run(NATURAL)

    def run(self, settings: Settings, stage: str = "", **values: Any) -> FinishedTrial:
        changes = changes_of(settings, NATURAL)
        reason = self.fails(changes)
        trial = FinishedTrial(
            number=len(self.trials),
            settings=settings,
            stage=stage,
            outcome=self.outcome if reason else Outcome.OK,
            samples_per_second=None if reason else 100.0,
            reason=reason,
            **values,
        )
        self.trials.append(trial)
        return trial

    @property
    def history(self) -> History:
        return History(self.trials, NATURAL)

    def investigated(self, **options: Any) -> list[dict[str, Any]]:
        """What is found guilty in the end; `tried` has what was run for that."""
        while (found := investigate(self.history, device_is_cpu=False, **options)).next_trial is not None:
            self.tried.append(changes_of(found.next_trial.settings, NATURAL))
            self.run(found.next_trial.settings)
            assert len(self.tried) < 40
        return [dict(combination.changes) for combination in found.combinations]


def fails_with(*names: str, why: str = "RuntimeError: no") -> Callable[[Mapping[str, Any]], str]:
    return lambda changes: why if all(name in changes for name in names) else ""


@pytest.mark.parametrize(
    "name", [name for name in JUMP if name not in ("num_workers", "prefetch_factor", "persistent_workers")]
)
def test_a_jump_that_crashes_is_taken_apart_by_halves_until_the_guilty_setting_is_known(name: str) -> None:
    script = Script(fails_with(name))
    script.run(replace(NATURAL, **JUMP))
    assert script.investigated() == [{name: JUMP[name]}]
    assert len(script.tried) <= 4
    assert script.tried[-1] == {name: JUMP[name]}


def test_a_pair_that_fails_only_together_is_found_and_each_of_it_stays() -> None:
    script = Script(fails_with("precision", "non_blocking"))
    script.run(replace(NATURAL, **JUMP))
    assert script.investigated() == [{"precision": Precision.BF16, "non_blocking": True}]
    space = without(space_of(), investigate(script.history, device_is_cpu=False).combinations)
    assert space.allowed == space_of().allowed
    assert space.why_not(replace(NATURAL, precision=Precision.BF16)) is None
    assert "RuntimeError: no" in str(space.why_not(replace(NATURAL, **JUMP)))


def test_two_guilty_settings_are_found_one_after_the_other() -> None:
    script = Script(lambda changes: "no" if {"channels_last", "cudnn_benchmark"} & changes.keys() else "")
    script.run(replace(NATURAL, **JUMP))
    (first,) = script.investigated()
    script.run(replace(NATURAL, **{name: value for name, value in JUMP.items() if name not in first}))
    assert [*first, *script.investigated()[1]] == ["cudnn_benchmark", "channels_last"]


def test_a_crash_in_another_number_format_at_the_same_place_needs_no_further_trial() -> None:
    words = {Precision.BF16: "BFloat16", Precision.FP16: "Half"}
    where = "RuntimeError: expected Float but found {} at model.py:23"

    def fails(changes: Mapping[str, Any]) -> str:
        return where.format(words[changes["precision"]]) if changes.get("precision") in words else ""

    script = Script(fails)
    script.run(replace(NATURAL, **JUMP))
    assert script.investigated() == [{"precision": Precision.BF16}]
    num_tried = len(script.tried)
    script.run(replace(NATURAL, **{**JUMP, "precision": Precision.FP16}))
    assert script.investigated() == [{"precision": Precision.BF16}, {"precision": Precision.FP16}]
    assert len(script.tried) == num_tried


def test_a_crash_at_another_place_is_taken_apart_anew() -> None:
    script = Script(lambda changes: f"no at model.py:{changes['precision']}1" if "precision" in changes else "")
    script.run(replace(NATURAL, precision=Precision.BF16))
    script.run(replace(NATURAL, precision=Precision.FP16, pin_memory=True))
    assert script.investigated() == [{"precision": Precision.BF16}, {"precision": Precision.FP16}]
    assert script.tried


def test_what_is_measured_later_asks_for_no_further_trial_of_a_failure_that_is_explained() -> None:
    script = Script(fails_with("num_workers"))
    script.run(replace(NATURAL, **JUMP))
    assert script.investigated(least_workers=1) == [{"num_workers": 1}]
    script.run(replace(NATURAL, pin_memory=True, precision=Precision.BF16, channels_last=True, non_blocking=True))
    num_tried = len(script.tried)
    assert script.investigated(least_workers=1) == [{"num_workers": 1}]
    assert len(script.tried) == num_tried


def test_workers_that_fail_in_any_number_are_all_left_out_at_once() -> None:
    script = Script(fails_with("num_workers"))
    script.run(replace(NATURAL, **JUMP))
    assert script.investigated(least_workers=1) == [{"num_workers": 1}]
    space = without(space_of(), investigate(script.history, device_is_cpu=False, least_workers=1).combinations)
    assert space.allowed["num_workers"] == (0,)


def test_too_many_workers_are_left_out_and_fewer_are_not() -> None:
    script = Script(lambda changes: "no" if changes.get("num_workers", 0) > 4 else "")
    script.run(replace(NATURAL, num_workers=8))
    assert script.investigated(least_workers=1) == [{"num_workers": 8}]
    space = without(space_of(), investigate(script.history, device_is_cpu=False).combinations)
    assert max(space.allowed["num_workers"]) == 6


def test_a_change_beside_what_was_measured_is_looked_at_alone() -> None:
    """The rest of the failed settings is known to do no harm."""
    script = Script(fails_with("channels_last"))
    script.run(replace(NATURAL, num_workers=4, precision=Precision.BF16))
    script.run(replace(NATURAL, num_workers=4, precision=Precision.BF16, channels_last=True))
    assert script.investigated() == [{"channels_last": True}]
    assert script.tried == [{"channels_last": True}]


@pytest.mark.parametrize("stage", AFTER_PLAN)
def test_after_the_plan_one_untried_value_beside_measured_ones_is_left_out_without_further_trials(stage: str) -> None:
    script = Script(lambda changes: "no" if changes.keys() >= {"batch_size", "precision", "channels_last"} else "")
    script.run(replace(NATURAL, **JUMP))
    script.run(replace(NATURAL, **JUMP, batch_size=16, grad_accum_steps=2), stage=stage)
    assert script.investigated() == [{"batch_size": (16, 2)}]
    assert script.tried == []
    space = without(space_of(), investigate(script.history, device_is_cpu=False).combinations)
    assert space.why_not(replace(NATURAL, batch_size=16, grad_accum_steps=2)) is not None
    assert space.why_not(replace(NATURAL, batch_size=8, grad_accum_steps=4)) is None, "one failure tells of one value"


def test_a_failure_after_the_plan_takes_no_measured_value_out_of_the_search() -> None:
    script = Script(lambda changes: "no" if changes.get("prefetch_factor") == 6 else "")
    own = replace(NATURAL, num_workers=8)
    script.run(replace(own, prefetch_factor=8))
    script.run(own)
    script.run(replace(own, prefetch_factor=6), stage=AFTER_PLAN[0])
    assert script.investigated() == [{"prefetch_factor": 6}]
    space = without(space_of(), investigate(script.history, device_is_cpu=False).combinations)
    assert space.why_not(replace(own, prefetch_factor=8)) is None


@pytest.mark.parametrize("is_raced_out", [False, True])
def test_after_the_plan_partners_are_looked_for_where_a_value_ran_before(is_raced_out: bool) -> None:
    script = Script(fails_with("precision", "channels_last"))
    script.run(replace(NATURAL, precision=Precision.BF16))
    alone = script.run(replace(NATURAL, channels_last=True))
    if is_raced_out:
        script.trials[-1] = replace(alone, outcome=Outcome.RACED_OUT)
    script.run(replace(NATURAL, precision=Precision.BF16, channels_last=True), stage=AFTER_PLAN[0])
    assert script.investigated() == [{"precision": Precision.BF16, "channels_last": True}]


def test_workers_that_fail_after_the_plan_are_taken_apart_as_ever() -> None:
    script = Script(fails_with("num_workers"))
    script.run(replace(NATURAL, pin_memory=True))
    script.run(replace(NATURAL, pin_memory=True, num_workers=8), stage=AFTER_PLAN[0])
    assert script.investigated(least_workers=1) == [{"num_workers": 1}]


def test_what_was_asked_and_not_in_force_needs_no_other_trial() -> None:
    script = Script(fails_with("compile"), Outcome.INVALID)
    script.run(replace(NATURAL, **JUMP, compile=True), missed=("compile",))
    assert script.investigated() == [{"compile": True}]
    assert script.tried == []


def test_settings_that_do_not_get_through_are_not_waited_for_once_more_than_needed() -> None:
    script = Script(fails_with("compile"), Outcome.TIMED_OUT)
    script.run(replace(NATURAL, precision=Precision.BF16, compile=True))
    assert script.investigated() == [{"compile": True}]
    assert script.tried == [{"precision": Precision.BF16}]


@pytest.mark.parametrize("values", [{"is_inconclusive": True}])
def test_an_end_that_says_nothing_of_the_settings_blames_none(values: dict[str, Any]) -> None:
    script = Script(fails_with("precision"), Outcome.INVALID)
    script.run(replace(NATURAL, **JUMP), **values)
    assert script.investigated() == [] and script.tried == []


def test_a_script_that_fails_by_itself_blames_nothing() -> None:
    script = Script(lambda changes: "no such file")
    assert script.investigated() == []


def test_a_micro_batch_that_fails_leaves_larger_ones_out_too() -> None:
    script = Script(lambda changes: "no" if changes.get("batch_size", (32, 1))[0] < 8 else "")
    script.run(replace(NATURAL, batch_size=4, grad_accum_steps=8))
    assert script.investigated() == [{"batch_size": (4, 8)}]
    space = without(space_of(), investigate(script.history, device_is_cpu=False).combinations)
    assert [space.divisors[int(index)] for index in space.allowed[SPLIT]] == [8, 16, 32]


def test_what_another_tuner_tries_is_not_tried_twice() -> None:
    script = Script(fails_with("channels_last"))
    script.run(replace(NATURAL, **JUMP))
    candidate = investigate(script.history, device_is_cpu=False).next_trial
    assert candidate is not None
    again = investigate(script.history, device_is_cpu=False, running=[candidate.settings])
    assert again.next_trial is None and again.combinations == ()


def test_a_value_that_the_user_fixed_stays_though_it_fails() -> None:
    script = Script(fails_with("channels_last"))
    script.run(replace(NATURAL, channels_last=True))
    combinations = investigate(script.history, device_is_cpu=False).combinations
    assert without(space_of(channels_last=(True,)), combinations).allowed["channels_last"] == (True,)


@pytest.mark.parametrize("name", ["channels_last", "num_workers"])
def test_a_search_tries_the_rest_of_a_crashed_jump_at_once_and_the_guilty_never_again(name: str) -> None:
    machine = gpu_machine()
    space = derive_space(script_facts(device="cuda"), machine, search_spec())
    limits = PlanLimits(usable_cpus=machine.usable_cpus, cap_bytes=8 << 30)
    search = Search(None, "study", space, limits, seed=0, max_trials=10, spend_all=True)
    stages: list[tuple[str, bool]] = []
    while not isinstance(proposal := search.ask(), SearchExhausted):
        has_failed = name in proposal.settings.differences(space.script_settings)
        crash = TrialResult(outcome=Outcome.CRASHED, reason="RuntimeError: no", place="train.py:5")
        answer = evaluate(
            lambda settings: 100.0 + 10 * len(settings.differences(space.script_settings)), proposal.settings, 1
        )
        search.tell(proposal.number, crash if has_failed else answer)
        stages.append((proposal.stage, has_failed))
    assert stages[:2] == [("baseline", False), ("usual", True)]
    taken_apart = [stage for stage in stages[2:] if stage[0] == "taken_apart"]
    assert stages[2 : 2 + len(taken_apart)] == taken_apart and taken_apart[-1] == ("taken_apart", True)
    assert stages[2 + len(taken_apart)] == ("usual", False)
    assert not any(has_failed for _, has_failed in stages[2 + len(taken_apart) :])
