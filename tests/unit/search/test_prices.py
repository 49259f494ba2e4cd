"""What a search does with the price of trials and the time left."""

from __future__ import annotations

import math
from dataclasses import replace

import optuna
import pytest

from autotune.model.outcome import Outcome
from autotune.model.surroundings import Surroundings
from autotune.search.history import FinishedTrial, History
from autotune.search.plan import COMPILE_STAGE
from autotune.search.plan_state import Candidate, PlanLimits
from autotune.search.prices import FREE, Prices
from autotune.search.search_stopping import AFTER_PLAN, SAMPLED_STAGE, why_a_minute_ends
from autotune.search.simpler import SIMPLER_STAGE, simplest, without_useless_changes
from autotune.search.study_search import Proposal, Search, SearchExhausted
from autotune.search.worker_stages import USUAL_STAGE
from autotune.settings import Settings
from autotune.settings.compile_mode import BUILD_S, build_of
from autotune.space.derive import derive_space
from autotune.space.search_space import SPLIT, SearchSpace
from autotune.units import GIB
from tests.benchmarks.search.family import make_space
from tests.unit.facts import gpu_machine, script_facts, search_spec
from tests.unit.search.test_forecast import trial
from tests.unit.search.test_study_search import measured, open_search, result

LIMITS = PlanLimits(usable_cpus=8.0, cap_bytes=4 * GIB)
ON_GPU = derive_space(script_facts(), gpu_machine(), search_spec())
OWN = ON_GPU.script_settings.canonical(device_is_cpu=False)


def prices(*, plain_s: float = 5.0, compiled_s: float = 40.0, left_s: float = math.inf) -> Prices:
    return Prices(trial_s=lambda settings: compiled_s if settings.compile else plain_s, spare_s=lambda settings: left_s)


def on_gpu(settings: Settings) -> float:
    """Compilation brings as much as the half format, everything else less."""
    rate = 100.0 * (1.3 if settings.precision in ("bf16", "fp16") else 1.0) * (1.3 if settings.compile else 1.0)
    return rate * (1 + 0.05 * min(settings.num_workers, 4))


def searched(time: Prices, *, num: int = 40, spend_all: bool = False) -> tuple[Search, list[Proposal], SearchExhausted]:
    search = Search(None, "study", ON_GPU, LIMITS, seed=0, max_trials=num, spend_all=spend_all)
    proposals = []
    while isinstance(proposal := search.ask(prices=time), Proposal):
        search.tell(proposal.number, result(Outcome.OK, rate=on_gpu(proposal.settings), compute=None))
        proposals.append(proposal)
    return search, proposals, proposal


def test_settings_without_time_for_a_trial_are_not_tried() -> None:
    _, proposals, end = searched(prices(compiled_s=40.0, left_s=20.0))
    assert len(proposals) > 2 and not any(proposal.settings.compile for proposal in proposals)
    assert end.reason
    assert any(proposal.settings.compile for proposal in searched(prices(left_s=math.inf))[1])


def test_a_dear_trial_comes_after_cheap_trials_of_the_same_expected_gain() -> None:
    def first_compiled(time: Prices) -> int:
        proposals = searched(time, spend_all=True)[1]
        return next((index for index, one in enumerate(proposals) if one.settings.compile), len(proposals))

    dear, cheap = (prices(compiled_s=compiled_s, left_s=300.0) for compiled_s in (200.0, 5.0))
    assert first_compiled(dear) > first_compiled(cheap)


def planned(
    left_s: float,
    space: SearchSpace = ON_GPU,
    num: int = 8,
    utilization: float | None = None,
    time: Prices | None = None,
) -> list[Proposal]:
    """Proposals of a search on a GPU that is fed, for which a compiled trial takes 40 s."""
    search = Search(None, "study", space, LIMITS, seed=0, max_trials=num, spend_all=True)
    time = time or prices(compiled_s=40.0, left_s=left_s)
    found = []
    while isinstance(proposal := search.ask(prices=time), Proposal):
        rate = on_gpu(proposal.settings)
        fed = result(Outcome.OK, rate=rate, compute=rate)
        assert fed.measurement is not None
        fed = replace(fed, measurement=replace(fed.measurement, data_wait_fraction=0.0))
        if utilization is not None:
            fed = replace(fed, surroundings=Surroundings(window_s=1.0, device_utilization=utilization))
        search.tell(proposal.number, fed)
        found.append(proposal)
    return found


def test_the_plan_compiles_only_where_time_for_two_such_trials_is_left() -> None:
    enough, short = ({proposal.stage for proposal in planned(left_s)} for left_s in (80.0, 79.0))
    assert COMPILE_STAGE in enough and COMPILE_STAGE not in short


def test_on_an_idle_device_time_for_one_trial_with_cuda_graphs_suffices() -> None:
    """Launches bind, and nothing else may gain as much."""
    enough, short = ({proposal.stage for proposal in planned(left_s, utilization=0.25)} for left_s in (40.0, 39.0))
    assert COMPILE_STAGE in enough and COMPILE_STAGE not in short


def test_without_the_time_for_cuda_graphs_the_plan_compiles_the_blocks_that_repeat() -> None:
    space = derive_space(script_facts(num_repeated_blocks=6), gpu_machine(), search_spec())
    time = Prices(
        trial_s=lambda settings: 5.0 + (BUILD_S[build_of(settings)] if settings.compile else 0.0),
        spare_s=lambda settings: 30.0,
    )
    found = planned(30.0, space, utilization=0.25, time=time)
    compiled = [one.settings.compile_mode for one in found if one.stage == COMPILE_STAGE]
    assert compiled == ["regional"]


def test_the_plan_goes_on_without_the_time_to_compile() -> None:
    """Each value of a knob is a step of the plan, and comes after the compiled model."""
    space = derive_space(
        script_facts(knobs=(("algo", "a"),)), gpu_machine(), search_spec(ranges=(("algo", "a,b,c,d,e"),))
    )
    found = planned(79.0, space, num=12)
    of_plan = [proposal for proposal in found if proposal.stage not in (*AFTER_PLAN, SIMPLER_STAGE)]
    assert {dict(proposal.settings.knobs)["algo"] for proposal in of_plan} == {*"abcde"}
    assert not any(proposal.settings.compile for proposal in of_plan)


def test_a_second_trial_that_compiles_is_tried_within_the_time_alone() -> None:
    """Little else is left to gain here, so the second trial of the plan compiles."""
    space = make_space(
        Settings(batch_size=64), {"compile": (False, True), "non_blocking": (False, True)}, device_is_cpu=False
    )
    second = {left_s: planned(left_s, space, num=2)[-1].settings for left_s in (39.0, 41.0)}
    assert [settings.compile for settings in second.values()] == [False, True]


def test_a_second_trial_without_the_time_for_a_whole_build_compiles_the_blocks_that_repeat() -> None:
    """Of nanoGPT, which has no loader and a format of its own, five minutes allow no more."""
    space = make_space(
        Settings(batch_size=64),
        {
            "compile": (False, True),
            "non_blocking": (False, True),
            "compile_mode": ("default", "regional"),
            "batch_size": (64, 128, 256),
        },
        device_is_cpu=False,
    )

    def second(left_s: float) -> Settings:
        time = Prices(trial_s=lambda one: 20.0 + BUILD_S[build_of(one)], spare_s=lambda one: left_s)
        return planned(left_s, space, num=2, time=time)[-1].settings

    found = [(one.compile, str(one.compile_mode), one.batch_size) for one in map(second, (60.0, 30.0))]
    assert found == [(True, "default", 64), (True, "regional", 64)]
    assert not second(25.0).compile


def minute(*gains: float | None, price_s: float) -> str | None:
    sampled = [
        replace(trial(number, replace(OWN, num_workers=number), 90.0), stage=SAMPLED_STAGE, expected_gain_ratio=gain)
        for number, gain in enumerate(gains[:-1], start=1)
    ]
    candidate = Candidate(settings=OWN, stage=SAMPLED_STAGE, expected_gain_ratio=gains[-1])
    return why_a_minute_ends(History(sampled, OWN), candidate, prices(plain_s=price_s))


def test_a_minute_that_gains_less_than_a_percent_is_not_worth_it() -> None:
    assert minute(0.004, 0.004, price_s=30.0) == "The next minute is expected to gain 0.8%, less than 1%."
    assert minute(0.004, 0.004, price_s=3.0) is None, "twenty trials of such a gain"
    assert minute(0.004, 0.02, price_s=30.0) is None, "a mean over two trials"
    assert minute(0.004, None, price_s=30.0) is None


def test_where_time_does_not_count_no_minute_ends_a_search() -> None:
    candidate = Candidate(settings=OWN, stage=SAMPLED_STAGE, expected_gain_ratio=0.0)
    assert why_a_minute_ends(History([], OWN), candidate, FREE) is None


def rated(number: int, rate: float, **changes: object) -> FinishedTrial:
    return trial(number, replace(OWN, **changes).canonical(device_is_cpu=False), rate)


def test_changes_that_gain_nothing_are_taken_back() -> None:
    """Of a winner's changes only the number format gains: the simplest settings end with the number format alone."""
    limits, changes = LIMITS, {"precision": "bf16", "cudnn_benchmark": True, "non_blocking": True, "pin_memory": True}
    history = History([trial(0, OWN, 100.0), rated(1, 200.0, **changes)], OWN)
    num = 1
    while (candidate := without_useless_changes(history, ON_GPU, limits)) is not None:
        assert candidate.stage == SIMPLER_STAGE
        num += 1
        rate = 200.0 if candidate.settings.precision == "bf16" else 100.0
        history = history.with_trials([replace(trial(num, candidate.settings, rate), stage=SIMPLER_STAGE)])
        assert num < 12
    found = simplest(history.feasible[0], history, noise_ratio=limits.noise_ratio)
    assert found.settings.differences(OWN).keys() == {"precision"}


def test_a_change_that_lets_the_micro_batch_fit_is_not_taken_back() -> None:
    """Half of the trials over the cap took back the number format of a micro-batch that fits in bf16 alone."""
    own = Settings(batch_size=32, grad_accum_steps=2)
    allowed = {"precision": ("fp32", "bf16"), "pin_memory": (False, True), SPLIT: tuple(range(7))}
    space = make_space(own, allowed, device_is_cpu=False)
    larger = {"batch_size": 64, "grad_accum_steps": 1, "precision": "bf16", "pin_memory": True}
    known = [
        trial(0, own, 100.0, peak=2.6),
        trial(1, replace(own, precision="bf16"), 101.0, peak=1.9),
        trial(2, replace(own, **larger), 200.0, peak=3.4),
    ]
    history, taken_back = History(known, own), list[Settings]()
    while (candidate := without_useless_changes(history, space, LIMITS)) is not None:
        taken_back.append(candidate.settings)
        peak = 3.4 if candidate.settings.batch_size == 64 else 1.9
        measured_now = trial(len(history) + 1, candidate.settings, 190.0, peak=peak)
        history = history.with_trials([replace(measured_now, stage=SIMPLER_STAGE)])
    assert replace(own, **{**larger, "pin_memory": False}) in taken_back
    assert all(one.precision == "bf16" for one in taken_back if one.batch_size == 64)


def test_a_change_that_pays_is_never_taken_back() -> None:
    history = History(
        [trial(0, OWN, 100.0), rated(1, 200.0, precision="bf16", pin_memory=True), rated(2, 150.0, precision="bf16")],
        OWN,
    )
    leader = history.feasible[0]
    assert simplest(leader, history, noise_ratio=0.02) == leader


@pytest.mark.parametrize("num", [1, 3])
def test_the_settings_of_an_expert_are_among_the_finalists_behind_the_fastest(num: int) -> None:
    search, proposals, _ = searched(prices())
    usual = next(proposal.settings for proposal in proposals if proposal.stage == USUAL_STAGE)
    found = [one.settings for one in search.finalists(num)]
    assert (usual in found) is (num > 1 or found == [usual])


def test_a_search_ends_with_changes_taken_back_before_the_time_does() -> None:
    search = open_search(optuna.storages.InMemoryStorage(), spend_all=False)
    stages = []
    while isinstance(proposal := search.ask(), Proposal):
        search.tell(proposal.number, measured(proposal.settings))
        stages.append(proposal.stage)
    best = search.finalists(3)
    assert SIMPLER_STAGE in stages
    assert min(len(one.settings.differences(search.script_settings)) for one in best) <= 3


def test_half_and_all_of_the_cores_and_what_lies_between_are_tried_where_the_loader_is_slow() -> None:
    def starving(settings: Settings) -> float:
        return 100.0 * min(max(settings.num_workers, 0.5), 13)

    space = derive_space(script_facts(), replace(gpu_machine(), usable_cpus=16.0), search_spec())
    search = Search(None, "study", space, replace(LIMITS, usable_cpus=16.0), seed=0, max_trials=8, spend_all=True)
    workers = []
    while isinstance(proposal := search.ask(), Proposal):
        rate = starving(proposal.settings)
        found = result(Outcome.OK, rate=rate, compute=5000.0)
        search.tell(proposal.number, found)
        workers.append(proposal.settings.num_workers)
    assert {8, 16} <= set(workers) and any(8 < number < 16 for number in workers)
