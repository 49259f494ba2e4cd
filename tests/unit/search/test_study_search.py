"""The search of a study in memory: what Optuna is told, what a resume proposes, what is never proposed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from sqlalchemy import event

from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, TrialResult
from autotune.model.surroundings import Surroundings
from autotune.search.forecast import scatters
from autotune.search.plan_state import PlanLimits
from autotune.search.prices import Prices
from autotune.search.study_search import Proposal, Search, SearchExhausted
from autotune.settings import Settings, changes_for_load
from autotune.space.derive import derive_space
from autotune.units import GIB
from tests.unit.facts import cpu_machine, gpu_machine, loader_facts, script_facts, search_spec

CAP_BYTES = 4 * GIB
SPACE = derive_space(script_facts(), cpu_machine(), search_spec())
LIMITS = PlanLimits(usable_cpus=2.0, cap_bytes=CAP_BYTES)
NUM_KILLED = 20


def open_search(storage, *, max_trials=30, spend_all=True):
    return Search(storage, "study", SPACE, LIMITS, seed=3, max_trials=max_trials, spend_all=spend_all)


def measured(settings):
    """Two workers with one thread are best; the rest follows smoothly."""
    rate = 100.0 + 80.0 * min(settings.num_workers, 2) - 20.0 * (settings.intra_op_threads - 1)
    rate *= 0.4 if settings.precision == "bf16" else 1.0
    rate /= 1.0 + 0.02 * (settings.grad_accum_steps - 1)
    return result(Outcome.OK, rate=rate)


def result(outcome, *, rate=100.0, compute=500.0, peak=GIB):
    measurement = Measurement(
        samples_per_second=rate,
        low=rate * 0.98,
        high=rate * 1.02,
        is_converged=True,
        is_nonstationary=False,
        is_primed=False,
        num_blocks=8,
        window_s=1.0,
        data_wait_fraction=0.3,
        compute_samples_per_second=compute,
    )
    return TrialResult(
        outcome=outcome, measurement=measurement if outcome.is_complete else None, peak_memory_bytes=peak
    )


def run(search, num):
    proposals = []
    for _ in range(num):
        proposal = search.ask()
        if isinstance(proposal, SearchExhausted):
            break
        search.tell(proposal.number, measured(proposal.settings))
        proposals.append(proposal)
    return proposals


@pytest.mark.parametrize(
    ("outcome", "peak", "state", "value", "violated"),
    [
        (Outcome.OK, GIB, "COMPLETE", 100.0, set()),
        (Outcome.RACED_OUT, GIB, "COMPLETE", 102.0, set()),
        (Outcome.OVER_CAP, 5 * GIB, "COMPLETE", 0.0, {"memory"}),
        (Outcome.OUT_OF_MEMORY, None, "COMPLETE", 0.0, {"memory"}),
        (Outcome.INVALID, GIB, "COMPLETE", 0.0, {"valid"}),
        (Outcome.CRASHED, None, "COMPLETE", 0.0, {"valid"}),
        (Outcome.TIMED_OUT, None, "COMPLETE", 0.0, {"valid"}),
    ],
)
def test_optuna_is_told_what_an_ending_means(outcome, peak, state, value, violated):
    storage = optuna.storages.InMemoryStorage()
    search = open_search(storage)
    proposal = search.ask()
    search.tell(proposal.number, result(outcome, peak=peak))
    trial = optuna.load_study(study_name="study", storage=storage).trials[proposal.number]
    assert trial.state.name == state
    assert trial.value == value
    named = {name: value for name, value in trial.constraints.items() if not name.isdigit()}
    assert list(named) == ["memory", "valid"]
    assert {name for name, violation in named.items() if violation > 0} == violated
    assert [trial.constraints["0"], trial.constraints["1"]] == list(named.values()), "mirrored for the dashboard"


def test_an_interrupted_trial_fails_and_its_settings_come_again():
    storage = optuna.storages.InMemoryStorage()
    search = open_search(storage)
    first = search.ask()
    search.tell(first.number, result(Outcome.INTERRUPTED))
    again = search.ask()
    assert again.settings == first.settings
    assert again.number != first.number
    assert search.num_finished == 0


def test_a_running_trial_of_a_dead_owner_is_queued_again():
    storage = optuna.storages.InMemoryStorage()
    first = open_search(storage).ask({"owner": {"pid": 1}})
    search = open_search(storage)
    assert search.reap(lambda attributes: attributes.get("owner") != {"pid": 1}) == ()
    assert search.reap(lambda attributes: attributes.get("owner") == {"pid": 1}) == (first.number,)
    assert search.ask().settings == first.settings


def test_nothing_is_proposed_twice_and_nothing_that_is_refused():
    proposals = run(open_search(optuna.storages.InMemoryStorage(), max_trials=60), 60)
    assert len({proposal.settings for proposal in proposals}) == len(proposals)
    assert all(SPACE.why_not(proposal.settings) is None for proposal in proposals)


def killed_at_every_trial():
    """The trials of a search whose tuner is killed in the middle of each and after each, and starts anew."""
    storage, is_begun = optuna.storages.InMemoryStorage(), False
    while True:
        search = open_search(storage, max_trials=NUM_KILLED)
        assert bool(search.reap(lambda _: True)) is is_begun
        proposal = search.ask()
        if isinstance(proposal, SearchExhausted):
            return search.history.trials
        if is_begun:
            search.tell(proposal.number, measured(proposal.settings))
        is_begun = not is_begun


def test_a_search_killed_at_every_trial_proposes_what_one_that_ran_through_did():
    through = open_search(optuna.storages.InMemoryStorage(), max_trials=NUM_KILLED)
    run(through, NUM_KILLED)
    killed = killed_at_every_trial()
    assert {"baseline", "neighbour", "simpler"} < {trial.stage for trial in killed}
    assert [replace(trial, number=number) for number, trial in enumerate(killed)] == list(through.history.trials)


def test_the_plan_finds_workers_and_threads_together_within_a_few_trials():
    proposals = run(open_search(optuna.storages.InMemoryStorage()), 5)
    assert proposals[0].settings == SPACE.script_settings.canonical(device_is_cpu=True)
    assert any((p.settings.num_workers, p.settings.intra_op_threads) == (2, 1) for p in proposals)


def test_beside_load_the_third_trial_has_no_change_that_may_help_only_there():
    search = open_search(optuna.storages.InMemoryStorage())
    loaded = Surroundings(window_s=1.0, usable_cpus=2.0, foreign_cpus=1.0)
    first = search.ask()
    search.tell(first.number, replace(measured(first.settings), surroundings=loaded))
    second = search.ask()
    assert changes_for_load(second.settings, first.settings)
    search.tell(second.number, replace(measured(second.settings), surroundings=loaded))
    third = search.ask()
    assert not changes_for_load(third.settings, first.settings)
    assert third.settings.num_workers == second.settings.num_workers != first.settings.num_workers


def test_the_budget_of_trials_is_spent_exactly():
    search = open_search(optuna.storages.InMemoryStorage(), max_trials=7)
    assert len(run(search, 50)) == 7
    assert isinstance(search.ask(), SearchExhausted)


def test_without_a_number_of_trials_the_search_ends_when_nothing_more_is_expected():
    search = open_search(optuna.storages.InMemoryStorage(), max_trials=500, spend_all=False)
    assert len(run(search, 500)) < 60


@pytest.mark.parametrize(("num_trials", "is_noisy"), [(4, False), (10, True)])
def test_a_few_trials_that_scatter_do_not_tell_a_noisy_machine(num_trials, is_noisy):
    search = open_search(optuna.storages.InMemoryStorage())
    for factor in (1.0, 1.5, 0.6, 1.4, 0.7, 1.6, 0.5, 1.3, 0.8, 1.5)[:num_trials]:
        proposal = search.ask()
        search.tell(proposal.number, result(Outcome.OK, rate=100.0 * factor, compute=500.0 * factor))
    assert scatters(search.history) is is_noisy


def test_finalists_are_the_best_few_without_the_baseline():
    search = open_search(optuna.storages.InMemoryStorage())
    proposals = run(search, 15)
    best = max(measured(p.settings).measurement.samples_per_second for p in proposals)
    finalists = search.finalists(3)
    assert len(finalists) == 3
    assert max(trial.samples_per_second for trial in finalists) == best
    assert search.baseline.settings not in [trial.settings for trial in finalists]


def test_a_study_that_stored_all_settings_goes_on(monkeypatch: pytest.MonkeyPatch):
    """Older versions stored the settings at their defaults too."""
    storage = optuna.storages.InMemoryStorage()
    with monkeypatch.context() as older:
        older.setattr(Settings, "to_short_dict", Settings.to_dict)
        run(open_search(storage), 1)
    study_id = storage.get_study_id_from_name("study")
    assert "precision" in storage.get_study_user_attrs(study_id)["natural"]
    search = open_search(storage)
    assert storage.get_study_id_from_name("study") == study_id, "the study was begun anew"
    proposal = search.ask({"owner": "me"})
    assert isinstance(proposal, Proposal) and search.baseline is not None
    assert proposal.settings != search.baseline.settings


def test_a_proposal_is_a_running_trial_with_its_settings_in_the_study():
    storage = optuna.storages.InMemoryStorage()
    proposal = open_search(storage).ask({"owner": "me"})
    assert isinstance(proposal, Proposal)
    trial = optuna.load_study(study_name="study", storage=storage).trials[proposal.number]
    assert trial.state.name == "RUNNING"
    assert trial.user_attrs["owner"] == "me"
    assert trial.params.items() <= SPACE.params(proposal.settings).items()
    assert SPACE.settings(trial.params) == proposal.settings


def test_optuna_is_told_of_the_parameters_that_are_searched():
    storage = optuna.storages.InMemoryStorage()
    proposals = run(open_search(storage), 3)
    trials = optuna.load_study(study_name="study", storage=storage).trials
    assert [SPACE.settings(trial.params) for trial in trials] == [proposal.settings for proposal in proposals]
    assert all(set(trial.params) == set(SPACE.searched) for trial in trials)


def optunas(storage) -> optuna.Study:
    return optuna.load_study(study_name="study", storage=storage)


def test_a_setting_that_is_left_out_stays_among_optunas_parameters():
    storage = optuna.storages.InMemoryStorage()
    search = open_search(storage)
    for _ in range(12):
        proposal = search.ask()
        is_guilty = proposal.settings.precision == "bf16"
        search.tell(proposal.number, result(Outcome.CRASHED) if is_guilty else measured(proposal.settings))
    assert any(trial.params["precision"] == "bf16" for trial in optunas(storage).trials)
    assert {tuple(trial.params) for trial in optunas(storage).trials} == {SPACE.searched}


def test_a_trial_queued_by_optunas_own_means_runs_with_what_it_was_queued_with():
    storage = optuna.storages.InMemoryStorage()
    search = open_search(storage)
    run(search, 1)
    optunas(storage).enqueue_trial({"num_workers": 1, "prefetch_factor": 4})
    proposal = search.ask()
    assert proposal.stage == "enqueued"
    assert proposal.settings == replace(SPACE.script_settings, num_workers=1, prefetch_factor=4)
    search.tell(proposal.number, measured(proposal.settings))
    trial = optunas(storage).trials[proposal.number]
    assert trial.state.name == "COMPLETE" and tuple(trial.params) == SPACE.searched
    assert SPACE.settings(trial.params) == proposal.settings


@pytest.mark.parametrize(
    "asked", [{"num_workers": 7000}, {"num_workers": "2"}, {"precision": "fp8"}, {"split": 99}, {"lr": 0.1}], ids=str
)
def test_a_trial_queued_with_what_the_space_does_not_have_is_withdrawn_by_name(asked):
    storage = optuna.storages.InMemoryStorage()
    search = open_search(storage)
    run(search, 1)
    optunas(storage).enqueue_trial(asked)
    assert search.ask().stage != "enqueued"
    trial = optunas(storage).trials[1]
    ((name, value),) = asked.items()
    assert trial.state.name == "PRUNED"
    assert trial.user_attrs["reason"] == f"{name} = {value} is not in the search space."


def test_a_trial_queued_with_a_number_for_a_switch_is_withdrawn():
    storage = optuna.storages.InMemoryStorage()
    search = open_search(storage)
    run(search, 1)
    optunas(storage).enqueue_trial({"persistent_workers": 1, "num_workers": 2})
    assert search.ask().stage != "enqueued"
    assert optunas(storage).trials[1].user_attrs["reason"].startswith("persistent_workers 1 is not true or false.")


@pytest.mark.parametrize("asked", [{"num_workers": 1}, {"split": 99}], ids=str)
def test_a_tuner_killed_while_it_takes_a_trial_from_the_queue_loses_nothing_of_it(asked):
    storage = optuna.storages.InMemoryStorage()
    run(open_search(storage), 1)
    optunas(storage).enqueue_trial(asked)
    optunas(storage).ask()
    search = open_search(storage)
    search.reap(lambda owner: True)
    proposal = search.ask()
    assert (proposal.settings == replace(SPACE.script_settings, num_workers=1)) is ("num_workers" in asked)


def test_a_new_trial_on_a_database_takes_few_statements(tmp_path: Path):
    """A statement takes a round trip, and a trial of a study on a distant database took 3 s before it began."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
    search = open_search(storage)
    run(search, 1)
    statements: list[str] = []
    event.listen(storage.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    proposal = search.ask()
    assert isinstance(proposal, Proposal) and len(statements) < 100
    statements.clear()
    search.tell(proposal.number, measured(proposal.settings))
    assert len(statements) < 25


def accelerator_space(**spec):
    facts = script_facts(device="cuda", loader=loader_facts(num_workers=2))
    return derive_space(facts, gpu_machine(), search_spec(**spec))


def test_the_first_jump_keeps_to_what_the_process_of_the_trials_can_change():
    search = Search(None, "study", accelerator_space(), LIMITS, seed=3, max_trials=4, spend_all=True)
    prices = Prices(
        trial_s=lambda settings: 1.0,
        spare_s=lambda settings: 1000.0,
        can_go_on=lambda settings: not settings.pin_memory,
    )
    jumps = []
    for number in range(2):
        proposal = search.ask(prices=prices)
        assert isinstance(proposal, Proposal)
        jumps.append(proposal.settings)
        search.tell(proposal.number, result(Outcome.OK, rate=100.0 + number, peak=GIB // 2))
    assert jumps[1].precision != jumps[0].precision and not jumps[1].pin_memory


def test_segments_that_expand_are_tried_where_a_larger_micro_batch_did_not_fit():
    space = accelerator_space(ranges=(("expandable_segments", "false,true"),), effective_batch="free")
    search = Search(None, "study", space, LIMITS, seed=3, max_trials=40, spend_all=True)
    tried = set()
    while isinstance(proposal := search.ask(), Proposal):
        settings = proposal.settings
        fits = settings.batch_size <= (128 if settings.expandable_segments else 64)
        rate = 100.0 * settings.batch_size / (settings.batch_size + 64)
        told = result(Outcome.OK, rate=rate, compute=rate, peak=round(settings.batch_size / 129 * CAP_BYTES))
        search.tell(proposal.number, told if fits else result(Outcome.OUT_OF_MEMORY, peak=None))
        tried.add((settings.batch_size, settings.expandable_segments, fits))
    assert (128, True, True) in tried


def test_a_suggestion_that_needs_more_than_the_cap_is_pruned_with_the_reason_and_not_run():
    storage, tried = optuna.storages.InMemoryStorage(), []
    space = accelerator_space(effective_batch="free")
    search = Search(storage, "study", space, LIMITS, seed=3, max_trials=16, spend_all=True)
    while isinstance(proposal := search.ask(), Proposal):
        tried.append(proposal.settings)
        size = proposal.settings.batch_size
        told = result(Outcome.OK, rate=size / (size + 64), compute=size / (size + 64), peak=size * CAP_BYTES // 100)
        search.tell(proposal.number, told if size <= 100 else result(Outcome.OUT_OF_MEMORY, peak=None))
    trials = optuna.load_study(study_name="study", storage=storage).trials
    pruned = [trial for trial in trials if trial.state.name == "PRUNED"]
    assert len(pruned) == search.num_gated > 0
    assert all("the cap is 4.0 GiB" in trial.user_attrs["reason"] for trial in pruned)
    assert not {Settings.from_dict(trial.user_attrs["settings"]) for trial in pruned} & set(tried)
