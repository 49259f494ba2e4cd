"""What a compilation costs is said with the steps after which it pays, against the same settings without it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autotune.model.facts import LoaderFacts
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import Status
from autotune.model.trial_records import TrialRecord
from autotune.search.history import FinishedTrial, History
from autotune.settings import Settings
from autotune.study.compile_cost import compile_note
from autotune.study.notes import notes_of
from autotune.verdict.aggregate import measurement_of
from tests.unit.facts import loader_facts
from tests.unit.runner.samples import block, rank

EAGER = Settings(batch_size=64)
COMPILED = replace(EAGER, compile=True)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(number: int, settings: Settings, *, build_s: float, block_s: float) -> TrialRecord:
    """A trial with 640 samples in 10 steps every so many seconds."""
    ranks = (rank(blocks=(block(duration_s=block_s),) * 12),)
    result = TrialResult(
        outcome=Outcome.OK,
        measurement=measurement_of(ranks),
        ranks=ranks,
        durations_s={"start": 3.0, "preparation": build_s / 2, "warm_up": build_s / 2, "window": 8.0},
    )
    return TrialRecord(
        number=number,
        settings=settings,
        stage="kernels",
        result=result,
        started_at=NOW,
        finished_at=NOW,
        environment={},
        optuna_told=True,
    )


def finished(number: int, settings: Settings) -> FinishedTrial:
    return FinishedTrial(
        number=number,
        settings=settings,
        stage="kernels",
        outcome=Outcome.OK,
        samples_per_second=1.0,
        peak_memory_bytes=1,
    )


def note(*trials: TrialRecord, winner: Settings = COMPILED, **about: LoaderFacts) -> str:
    return compile_note(finished(1, winner), finished(0, EAGER), trials, (), **about)


def test_a_compilation_pays_after_as_many_steps_as_make_up_for_it() -> None:
    # 10 ms a step before and 5 ms after: 30 s more at the start are 6000 steps.
    text = note(record(0, EAGER, build_s=1.0, block_s=0.1), record(1, COMPILED, build_s=31.0, block_s=0.05))
    assert text == "Compiling the model takes 30 s at the start of a run, and pays after 6000 steps."


def test_the_build_for_a_smaller_last_batch_is_told_where_there_is_one() -> None:
    trials = [record(0, EAGER, build_s=1.0, block_s=0.1), record(1, COMPILED, build_s=31.0, block_s=0.05)]
    loader = loader_facts(num_samples=6432, num_batches=101)
    assert note(*trials, loader=loader).endswith("for the smaller last batch, at the end of the first epoch.")
    assert loader.ends_with_smaller_batch(64) and not loader.ends_with_smaller_batch(32)
    assert not replace(loader, num_samples=6400, num_batches=100).ends_with_smaller_batch(64)
    assert not replace(loader, num_batches=100, drop_last=True).ends_with_smaller_batch(64)
    assert not replace(loader, num_batches=51).ends_with_smaller_batch(64)  # One of two ranks.


def test_it_is_compared_with_the_same_settings_where_they_were_measured() -> None:
    winner = replace(COMPILED, num_workers=4)
    trials = [
        record(0, EAGER, build_s=1.0, block_s=1.0),
        record(1, winner, build_s=11.0, block_s=0.05),
        record(2, replace(winner, compile=False), build_s=1.0, block_s=0.1),
    ]
    assert "pays after 2000 steps" in note(*trials, winner=winner)
    assert "pays after 2000 steps" not in note(*trials[:2], winner=winner)


def test_a_compilation_without_a_gain_of_its_own_is_said_to_have_none() -> None:
    text = note(record(0, EAGER, build_s=1.0, block_s=0.1), record(1, COMPILED, build_s=31.0, block_s=0.1))
    assert text.endswith("does not pay by itself.")


@pytest.mark.parametrize("winner", [EAGER, replace(EAGER, num_workers=2)])
def test_nothing_is_said_where_nothing_is_compiled(winner: Settings) -> None:
    assert note(record(0, EAGER, build_s=1.0, block_s=0.1), record(1, winner, build_s=2.0, block_s=0.1)) == ""


def test_what_an_earlier_trial_compiled_is_not_taken_for_cheap() -> None:
    trials = [
        record(0, EAGER, build_s=1.0, block_s=0.1),
        record(1, replace(COMPILED, num_workers=2), build_s=31.0, block_s=0.05),
        record(2, COMPILED, build_s=3.0, block_s=0.05),
    ]
    assert note(*trials) == "Compiling the model takes 30 s at the start of a run, and pays after 6000 steps."


def test_the_build_of_a_live_trial_counts_where_later_processes_found_it_in_the_cache() -> None:
    live = record(1, COMPILED, build_s=3.0, block_s=0.05)
    live = replace(live, result=replace(live.result, durations_s={"switch": 30.0, "warm_up": 0.5, "window": 8.0}))
    trials = [record(0, EAGER, build_s=1.0, block_s=0.1), live, record(2, COMPILED, build_s=3.0, block_s=0.05)]
    assert note(*trials) == "Compiling the model takes 30 s at the start of a run, and pays after 6000 steps."


def test_the_user_is_told_with_the_result() -> None:
    trials = [record(0, EAGER, build_s=1.0, block_s=0.1), record(1, COMPILED, build_s=31.0, block_s=0.05)]
    history = History([finished(0, EAGER), finished(1, COMPILED)], EAGER)
    notes = notes_of(Status.IMPROVED, history, history.get(COMPILED), trials, None)
    assert notes == ("Compiling the model takes 30 s at the start of a run, and pays after 6000 steps.",)
    assert notes_of(Status.IMPROVED, history, history.get(EAGER), trials, None) == ()


def test_trackers_that_the_script_imports_are_named() -> None:
    trials = [record(0, EAGER, build_s=1.0, block_s=0.1)]
    history = History([finished(0, EAGER)], EAGER)
    imports = ("torch", "wandb", "wandb.sdk", "mlflow")
    (note,) = notes_of(Status.IMPROVED, history, history.get(EAGER), trials, None, imports=imports)
    assert "MLflow, Weights & Biases" in note and "online" in note


def test_a_search_without_a_choice_says_that_there_was_nothing_to_search() -> None:
    trials = [record(0, EAGER, build_s=1.0, block_s=0.1)]
    history = History([finished(0, EAGER)], EAGER)
    (said,) = notes_of(Status.NO_GAIN, history, history.get(EAGER), trials, None, has_choice=False)
    assert "nothing to search" in said
    assert notes_of(Status.NO_GAIN, history, history.get(EAGER), trials, None) == ()
