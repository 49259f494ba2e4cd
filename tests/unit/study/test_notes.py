"""Notes beside the published ratio."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autotune.host import fingerprint
from autotune.measure.paired import SHARED_ERROR, Final, compare
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult, RankStatus, StartKind, TrialResult
from autotune.model.search_result import Status
from autotune.model.surroundings import Surroundings
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.protocol.codec import to_plain
from autotune.search.history import FinishedTrial, History
from autotune.settings import Settings
from autotune.store.records import StudyRecord
from autotune.study.budget import Budget
from autotune.study.final_choice import FinalsResult
from autotune.study.larger_batches import BatchGain
from autotune.study.notes import _on_checkpoints, _on_kernel_searches, _on_ratio, notes_of, notes_on_search
from autotune.verdict.aggregate import measurement_of
from autotune.verdict.judge import TIME_RAN_OUT
from tests.unit.facts import cpu_machine, script_facts, search_spec
from tests.unit.measure.simulated import make_blocks
from tests.unit.runner.samples import block, rank


def finals(*ratios: float, is_shared: bool) -> list[Final]:
    """Rounds in which candidate 1 is faster than candidate 0 by these ratios."""
    return [
        Final(
            round=number,
            candidate=candidate,
            samples_per_second=rate,
            peak_memory_bytes=1,
            feasible=True,
            is_shared=is_shared,
        )
        for number, ratio in enumerate(ratios)
        for candidate, rate in ((0, 100.0), (1, 100.0 * ratio))
    ]


@pytest.mark.parametrize("is_shared", [True, False])
def test_rounds_that_agree_are_not_said_to_differ_although_their_process_makes_the_interval_longer(
    is_shared: bool,
) -> None:
    """Two ranks of a Trainer: 2.58x, 2.56x and 2.55x, and [2.27, 2.89] for the process of the trials."""
    agreeing = compare(finals(2.58, 2.56, 2.55, is_shared=is_shared), 1, 0)
    assert agreeing.shared_error == (SHARED_ERROR if is_shared else 0.0)
    assert not list(_on_ratio(agreeing))
    [note] = _on_ratio(compare(finals(2.58, 1.9, 2.2, is_shared=is_shared), 1, 0))
    assert "3 rounds of the finals differ" in note


def result_of(durations_s: list[float], *saved: int) -> TrialResult:
    """A result whose blocks of these numbers hold saves."""
    blocks = [
        replace(block, num_saves=3 * int(number in saved)) for number, block in enumerate(make_blocks(durations_s))
    ]
    rank = RankResult(rank=0, world_size=1, status=RankStatus.MEASURED, num_steps=len(blocks), blocks=tuple(blocks))
    return TrialResult(outcome=Outcome.OK, ranks=(rank,), measurement=measurement_of([rank]))


def test_checkpoints_are_told_with_their_cost_and_with_the_rates_that_include_them() -> None:
    plain, failed = result_of([0.1] * 21), TrialResult(outcome=Outcome.CRASHED)
    saving = result_of([2.1, *[0.1] * 18, 2.1], 0, 19)
    assert saving.measurement is not None and saving.measurement.samples_per_second == pytest.approx(320.0)
    assert not list(_on_checkpoints([plain, failed]))
    [note] = _on_checkpoints([plain, failed, saving, saving])
    assert note == "In 1 of 2 measurements the script saved a checkpoint, which took 2.0 s. The rates leave it out."
    [note] = _on_checkpoints([plain, saving, result_of([0.1, 0.6] * 4, 1, 3, 5, 7)])
    assert note.startswith("In 2 of 3 measurements") and "The rates of 1 of them include it" in note
    assert not list(_on_checkpoints([plain, result_of([0.1] * 20, 19)])), "a save that takes no time"
    [note] = _on_checkpoints([result_of([0.5] * 8, *range(8))])
    assert note.startswith("In 1 of 1 measurements the script saved a checkpoint. The rates of 1")


def test_blocks_left_out_for_searches_of_kernels_are_told_once_for_all_measurements() -> None:
    plain = result_of([0.5] * 8)
    searched = replace(plain, ranks=tuple(replace(rank, left_out_s=45.2) for rank in plain.ranks))
    assert not list(_on_kernel_searches([plain]))
    [note] = _on_kernel_searches([plain, searched, searched])
    assert note.startswith("In 2 of 3 measurements cuDNN searched kernels") and "up to 45 s" in note


def test_checkpoints_that_take_a_part_of_the_gain_are_told_with_that_part() -> None:
    """GPT-2 by the HF Trainer on an H100: 4.77x claimed, 4.43x with a checkpoint of 2.1 s every 500 steps."""
    own, ours = result_of([0.2] * 20), result_of([0.042] * 20)
    live = replace(result_of([0.05] * 240), start=StartKind.LIVE)
    saving = replace(result_of([*[0.05] * 259, 2.15, *[0.05] * 40], 259), start=StartKind.LIVE)
    first = result_of([0.2] * 5)
    [note] = _on_checkpoints([first, live, saving, live, own, ours], ours=[ours], own=[own])
    assert (
        "The first one came after about 505 steps; with one as often, the ratio to your settings is 7% smaller" in note
    )
    many = [replace(live, wall_s=float(number)) for number in range(90)]
    [note] = _on_checkpoints([first, *many, saving, own, ours], ours=[ours], own=[own])
    assert note.endswith("The rates leave it out."), "one in 22,000 steps takes nothing"
    [note] = _on_checkpoints([live, result_of([*[0.05] * 20, 2.15], 20)])
    assert note.endswith("The rates leave it out."), "without finals there is no gain"


@pytest.mark.parametrize(("samples_per_step", "is_offered"), [(None, True), (64.0, False)])
def test_a_free_batch_is_offered_only_to_a_search_that_could_choose_the_batch(
    samples_per_step: float | None, is_offered: bool
) -> None:
    study = StudyRecord(
        name="train",
        spec=search_spec(samples_per_step=samples_per_step),
        fingerprint={
            "arguments": "",
            "host": to_plain(fingerprint(cpu_machine().device, num_devices=1, torch_version="")),
        },
        created_at=datetime.now(UTC),
        facts=script_facts(),
    )
    gains = (BatchGain(factor=2, effective_batch=128, ratio=1.5),)
    budget = Budget(600.0, 0.0, lambda: 0.0)
    notes = " ".join(notes_on_search(study, Status.NO_GAIN, History([], Settings()), gains, budget))
    assert "At 2x the batch your device would do +50%" in notes
    assert ("--effective-batch" in notes) is is_offered


def record_of(number: int, settings: Settings, result: TrialResult) -> TrialRecord:
    return TrialRecord(
        number=number,
        settings=settings,
        stage="",
        result=result,
        started_at=datetime.now(UTC),
        finished_at=datetime.now(UTC),
        optuna_told=True,
    )


def test_the_best_trial_is_told_once_and_against_the_trial_of_the_scripts_own_settings() -> None:
    """Trials at 34.8 and 61.0 were listed as 1.75x, and a note said 1.49x: the finals' runs had raised the first."""
    settings = (Settings(), Settings(num_workers=2))
    records = [record_of(number, settings[number], result_of([0.1 / rate] * 20)) for number, rate in enumerate((4, 7))]
    measured = [record.result.measurement.samples_per_second for record in records if record.result.measurement]
    own, best = (
        FinishedTrial(number=n, settings=settings[n], stage="", outcome=Outcome.OK, samples_per_second=measured[n])
        for n in (0, 1)
    )
    history = History((own.with_runs([2 * measured[0]]), best), own.settings)
    notes = notes_of(Status.TOO_SHORT, history, own, records, None)
    assert [note for note in notes if "1.75x the trial of your own settings" in note] == [notes[0]]
    raised = History((own.with_runs([5 * measured[0]] * 3), best), own.settings)
    assert raised.best is not None and raised.best.number == 0
    assert notes_of(Status.TOO_SHORT, raised, own, records, None)[0] == notes[0]
    slower = History((own, best.with_runs([3 * measured[1]] * 3)), own.settings)
    reversed_records = [records[0], replace(records[1], result=result_of([0.1 / 3] * 20))]
    assert not any(
        "Best single trial" in note for note in notes_of(Status.TOO_SHORT, slower, own, reversed_records, None)
    )
    rounds = FinalsResult(
        winner=own,
        baseline=own,
        comparison=None,
        records=tuple(
            FinalRecord(
                round=0,
                number=record.number,
                settings=record.settings,
                result=record.result,
                finished_at=record.finished_at,
            )
            for record in records
        ),
    )
    [note] = [note for note in notes_of(Status.TOO_SHORT, history, own, records, rounds) if "not confirmed" in note]
    assert note.startswith("In the trials alone trial 1 was 1.75x")


@pytest.mark.parametrize(
    ("status", "rates", "contenders", "has_note"),
    [
        (Status.NO_GAIN, (191.0, 192.0, 221.0), (0, 1), True),
        (Status.IMPROVED, (191.0, 300.0, 330.0), (0, 1), True),
        (Status.NO_GAIN, (191.0, 192.0, 221.0), (0, 2), False),
        (Status.NO_GAIN, (191.0, 219.0, 221.0), (0, 1), False),
        (Status.NO_GAIN, (191.0, 192.0, 180.0), (0, 1), False),
        (Status.TOO_SHORT, (191.0, 192.0, 221.0), (0, 1), False),
    ],
)
def test_the_fastest_trial_is_told_when_it_did_not_run_in_the_finals(
    status: Status, rates: tuple[float, ...], contenders: tuple[int, ...], has_note: bool
) -> None:
    """A trial was listed at 1.16x as the best so far, and the summary said no gain without a word on it."""
    settings = tuple(Settings(num_workers=number) for number in range(3))
    records = [record_of(n, settings[n], result_of([0.1 * 100 / rate] * 20)) for n, rate in enumerate(rates)]
    measured = [record.result.measurement.samples_per_second for record in records if record.result.measurement]
    trials = tuple(
        FinishedTrial(number=n, settings=settings[n], stage="", outcome=Outcome.OK, samples_per_second=measured[n])
        for n in range(3)
    )
    result = FinalsResult(
        winner=trials[0],
        baseline=trials[0],
        comparison=None,
        records=tuple(
            FinalRecord(round=0, number=n, settings=settings[n], result=result_of_trial, finished_at=datetime.now(UTC))
            for n, result_of_trial in enumerate(record.result for record in records)
            if n in contenders
        ),
    )
    notes = notes_of(status, History(trials, settings[0]), trials[0], records, result)
    told = [note for note in notes if "did not run in the finals" in note]
    assert bool(told) is has_note
    if told:
        assert told[0].startswith(f"Trial 2 was the fastest single trial, {rates[2] / rates[0]:.2f}x the trial of")
    slower = replace(result, measured=frozenset({*contenders, 2}))  # Found slower, it left the finals.
    notes = notes_of(status, History(trials, settings[0]), trials[0], records, slower)
    assert not any("did not run in the finals" in note for note in notes)


def test_a_trial_that_was_cut_is_no_disturbed_trial() -> None:
    """A summary counted 0 trials, and a note said that 1 of 1 trials was disturbed."""
    busy = Surroundings(window_s=8.0, usable_cpus=2.0, foreign_cpus=1.0)
    cut = replace(result_of([0.1] * 20), outcome=Outcome.INTERRUPTED, surroundings=busy)
    own = FinishedTrial(number=0, settings=Settings(), stage="", outcome=Outcome.INTERRUPTED, samples_per_second=None)
    for result, has_note in ((cut, False), (replace(cut, outcome=Outcome.OK), True)):
        record = record_of(0, Settings(), result)
        notes = notes_of(Status.TOO_SHORT, History((own,), own.settings), None, [record], None)
        assert any("1 of 1 trials was disturbed" in note for note in notes) is has_note


@pytest.mark.parametrize(("wall_s", "has_note"), [(90.0, True), (1.0, False)])
def test_a_trial_that_took_much_of_the_time_and_was_not_through_is_told(wall_s: float, has_note: bool) -> None:
    """A build of a model took 90 of 180 s, and the summary spoke of four trials in 29 s of measuring."""
    own = FinishedTrial(number=0, settings=Settings(), stage="", outcome=Outcome.OK, samples_per_second=100.0)
    measured = record_of(0, Settings(), replace(result_of([0.1] * 20), wall_s=26.0))
    cut = TrialResult(outcome=Outcome.INTERRUPTED, reason=TIME_RAN_OUT, wall_s=wall_s)
    built = record_of(1, Settings(compile=True), cut)
    notes = notes_of(Status.IMPROVED, History((own,), own.settings), None, [measured, built], None)
    told = [note for note in notes if note.startswith("Trial 1, which compiles the model, was ended after 1 min 30 s")]
    assert bool(told) is has_note


@pytest.mark.parametrize(("restart_s", "has_note"), [(1.0, True), (0.1, False), (None, False)])
def test_what_the_start_of_workers_takes_of_every_epoch_is_told(restart_s: float | None, has_note: bool) -> None:
    plain = result_of([0.1] * 20)
    assert plain.measurement is not None
    result = replace(plain, measurement=replace(plain.measurement, restart_s=restart_s, epoch_s=4.0))
    own = FinishedTrial(number=0, settings=Settings(), stage="", outcome=Outcome.OK, samples_per_second=100.0)
    record = record_of(0, Settings(), result)
    for is_rebuilt in (True, False):
        history = History((own,), own.settings)
        notes = notes_of(Status.NO_GAIN, history, own, [record], None, is_rebuilt=is_rebuilt)
        told = [note for note in notes if "takes 1.00 s of an epoch of 5.00 s" in note]
        assert bool(told) is (has_note and is_rebuilt)


@pytest.mark.parametrize(
    ("num_skipped", "outcome", "has_note"),
    [(1, Outcome.OK, True), (0, Outcome.OK, False), (9, Outcome.INVALID, False)],
)
def test_a_script_that_skips_many_of_its_steps_is_told_so(num_skipped: int, outcome: Outcome, has_note: bool) -> None:
    own = FinishedTrial(number=0, settings=Settings(), stage="baseline", outcome=outcome, samples_per_second=100.0)
    skipping = rank(blocks=(block(num_skipped_steps=num_skipped),) * 12)
    record = TrialRecord(
        number=0,
        settings=Settings(),
        stage="baseline",
        result=TrialResult(outcome=outcome, wall_s=5.0, ranks=(skipping,), measurement=measurement_of([skipping])),
        started_at=datetime.now(UTC),
        finished_at=datetime.now(UTC),
        optuna_told=True,
    )
    notes = notes_of(Status.NO_GAIN, History((own,), own.settings), own, (record,), None)
    assert any("12 of 120 optimizer steps were skipped" in note for note in notes) is has_note
