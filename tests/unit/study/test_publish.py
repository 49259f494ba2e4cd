"""What a search publishes of its finals: the rate over whole epochs, the steady one beside it, and what binds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autotune.emit.tuned_config import read_config
from autotune.lab.function_runner import Measured, evaluate
from autotune.model.result import ParityGap
from autotune.model.surroundings import Surroundings
from autotune.model.trial_records import FinalRecord, results_of_runs
from autotune.settings import Settings
from autotune.study.publish import MEASURING_PARTS, bottleneck_of
from autotune.units import GIB
from autotune.verdict.format_parity import NOT_CLAIMED
from tests.unit.runner.samples import rank
from tests.unit.study.whole_search import by_workers, folder

__all__ = ["folder"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def with_restarts(settings: Settings):
    """Epochs of 9 seconds, which take a second to begin."""
    result = evaluate(by_workers, settings, 4 * GIB)
    return replace(result, measurement=replace(result.measurement, restart_s=1.0, epoch_s=9.0))


def test_the_rate_over_whole_epochs_is_published_with_the_steady_one_beside_it(folder):
    folder.runner.measure = with_restarts
    result = folder.search()
    for contender in (result.best, result.baseline):
        assert contender.steady_samples_per_second == pytest.approx(contender.samples_per_second * 10 / 9)
    # Of what it does within an epoch: the start of one is no bottleneck of the steps.
    assert result.ceiling_fraction == pytest.approx(result.baseline.samples_per_second * 10 / 9 / 400.0)
    assert result.ceiling_samples_per_second == 400.0


def test_where_epochs_begin_at_no_cost_there_is_one_rate(folder):
    result = folder.search()
    assert result.best.steady_samples_per_second is result.baseline.steady_samples_per_second is None
    assert result.ceiling_fraction == pytest.approx(result.baseline.samples_per_second / 400.0)


@pytest.mark.parametrize(("wait", "kind"), [(0.5, "loader"), (0.01, "cpu_contention")])
def test_what_binds_follows_from_the_direct_and_the_differential_stall(folder, wait, kind):
    """Half of what the device could do is lost: to waiting for data, or to workers that take its cores."""
    folder.runner.measure = lambda settings: replace(
        by_workers(settings), data_wait_fraction=wait, compute_samples_per_second=2 * 100.0
    )
    result = folder.search(max_trials=1)
    assert (result.bottleneck, result.data_wait_fraction) == (kind, pytest.approx(wait))
    assert result.ceiling_fraction == pytest.approx(0.5)


def test_that_parity_of_the_winner_is_not_claimed_is_said_once(folder):

    def measure(settings):
        result = evaluate(by_workers, settings, 4 * GIB)
        found = replace(result, parity_gap=ParityGap.UNKNOWN_START, notes=("Something else.",))
        return found if settings.num_workers == 2 else result

    folder.runner.measure = measure
    result = folder.search()
    assert result.best.settings.num_workers == 2
    note = NOT_CLAIMED[ParityGap.UNKNOWN_START]
    assert [said for said in result.notes if said in (note, "Something else.")] == [note]


@pytest.mark.parametrize(
    ("utilisations", "device_is_cpu", "kind"),
    [
        ((0.3, 0.4), False, "host"),
        ((0.9, 0.95), False, "compute"),
        ((0.3, 0.4), True, "compute"),
        ((None,), False, "compute"),
    ],
)
def test_a_device_that_is_idle_while_nobody_waits_for_data_is_held_up_by_the_host(utilisations, device_is_cpu, kind):
    """By what its finals saw of it; what its own trial saw is not asked then."""
    finals = [
        FinalRecord(round=number, number=1, settings=Settings(), result=seen_at(utilisation), finished_at=NOW)
        for number, utilisation in enumerate(utilisations)
    ]
    assert bottleneck_of(1, finals, (), device_is_cpu=device_is_cpu).kind == kind


def seen_at(utilisation):
    """A run at its ceiling, with that share of its window in which the device ran some kernel."""
    measured = Measured(samples_per_second=100.0, compute_samples_per_second=100.0)
    around = Surroundings(window_s=3.0, device_utilization=utilisation)
    return replace(evaluate(lambda _: measured, Settings(), 4 * GIB), surroundings=around)


def test_a_trial_that_is_the_first_round_of_the_finals_is_one_run(folder):
    result = folder.search(max_trials=1)
    with folder.repository() as repository:
        trials, finals = repository.trials("train"), repository.finals("train")
        without_ranks = repository.trials("train", with_ranks=False)
    assert finals[0].result == trials[0].result
    assert results_of_runs(trials, finals) == (trials[0].result, *(final.result for final in finals[1:]))
    assert len(results_of_runs(without_ranks, finals)) == len(finals), "a page reads the trials without their ranks"
    durations = [run.durations_s for run in results_of_runs(trials, finals)]
    assert result.measuring_s == sum(parts.get(name, 0.0) for parts in durations for name in MEASURING_PARTS)


@pytest.mark.parametrize(("study", "name"), [("train", "train"), ("again & <b>/x", "again----b--x")])
def test_the_config_of_a_search_lies_beside_a_config_that_came_while_it_ran(folder, study, name):
    place, theirs = folder.path / "autotune.yaml", "schema: 1\n"

    def measure(settings):
        place.write_text(theirs)  # Another search in the same folder has ended.
        return by_workers(settings)

    folder.runner.measure = measure
    result = folder.search(force=False, study=study)
    beside = folder.path / f"autotune-{name}.yaml"
    assert place.read_text() == theirs
    assert result.config == str(beside) and read_config(beside).settings == result.best.settings
    assert any(str(place) in note and f"The config of this search is {beside}." in note for note in result.notes)


def test_a_config_that_can_be_written_nowhere_says_how_its_trials_count(folder):

    def measure(settings):
        (folder.path / "autotune.yaml").mkdir(exist_ok=True)
        (folder.path / "autotune-train.yaml").mkdir(exist_ok=True)
        return by_workers(settings)

    folder.runner.measure = measure
    result = folder.search()
    assert result.config is None and result.best is not None
    assert any("could not be written" in note and "--take-over train" in note for note in result.notes)


@pytest.mark.parametrize(
    ("is_used", "options", "is_kept"),
    [(True, {}, True), (False, {}, False), (False, {"ranges": (("num_workers", "0,2"),)}, True)],
)
def test_a_change_that_no_run_put_to_use_is_not_published_unless_asked_for(
    folder, monkeypatch, is_used, options, is_kept
):
    """nanoGPT copies without waiting by itself, and its config changed `non_blocking` all the same."""
    monkeypatch.setattr("autotune.verdict.in_force.UNSEEN_FIELDS", ("num_workers",))

    def measure(settings):
        seen = {"num_workers": settings.num_workers} if is_used else {}
        return replace(evaluate(by_workers, settings, 4 * GIB), ranks=(rank(observed={"in_order": True, **seen}),))

    folder.runner.measure = measure
    result = folder.search(**options)
    with folder.repository() as repository:
        measured = {trial.number: trial.settings for trial in repository.trials("train")}[result.best.trial]
    assert measured.num_workers == 2
    assert (result.best.settings.num_workers == 2) is is_kept
    assert read_config(folder.path / "autotune.yaml").settings == result.best.settings
    assert any("num_workers" in each.settings for each in result.contributions) is is_kept
