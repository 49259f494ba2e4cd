"""A trial in another number format trains what fp32 trains, or it is invalid; what cannot be compared is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.measure.loss_parity import LossReference
from autotune.model.outcome import Outcome
from autotune.model.result import ParityGap, TrialResult
from autotune.settings import Precision, Settings
from autotune.verdict.format_parity import NOT_CLAIMED, references_of
from autotune.verdict.judge import Verdict, judge
from tests.unit.runner.samples import ending, job, rank

FP32 = (2.3, 2.2, 2.1, 2.0)
BATCHES = (7, 7, 7, 8)
"""Three passes on the first batch, and one on the next."""
REFERENCE = LossReference(start_digest="same", losses=FP32, batches=BATCHES)


def verdict_of(
    precision: Precision,
    losses: tuple[float, ...],
    *,
    digest: str | None = "same",
    batches: tuple[int, ...] = BATCHES,
    reference: LossReference = REFERENCE,
) -> Verdict:
    settings = Settings(batch_size=64, precision=precision)
    observed = {"precision": precision.value}
    report = rank(first_losses=losses, first_batches=batches, start_digest=digest, observed=observed)
    return judge(job(settings=settings, references=(reference,)), ending(), [report])


def test_losses_close_to_fp32s_are_valid_and_nothing_is_noted() -> None:
    verdict = verdict_of(Precision.BF16, (2.31, 2.19, 2.12, 2.0))
    assert verdict.outcome is Outcome.OK
    assert verdict.notes == ()


def test_a_loss_beyond_tolerance_is_invalid_with_the_numbers() -> None:
    verdict = verdict_of(Precision.BF16, (2.3, 2.2, 2.28, 2.0))
    assert verdict.outcome is Outcome.INVALID
    for number in ("pass 3", "2.28", "2.1", "7.8%", "4.6%", "bf16"):
        assert number in verdict.reason


@pytest.mark.parametrize("batches", [(7, 7, 8, 8), (7, 7)])
def test_losses_on_other_batches_are_not_compared(batches: tuple[int, ...]) -> None:
    assert verdict_of(Precision.BF16, (2.3, 2.2, 3.1, 3.0), batches=batches).outcome is Outcome.OK
    assert verdict_of(Precision.BF16, (2.3, 2.0, 3.1, 3.0), batches=batches).outcome is Outcome.INVALID


def test_without_a_pass_on_the_same_batches_parity_is_not_claimed() -> None:
    verdict = verdict_of(Precision.BF16, (9.0, 9.0, 9.0), batches=(8, 8, 8))
    assert verdict.outcome is Outcome.OK
    assert verdict.notes == (NOT_CLAIMED[ParityGap.NO_REFERENCE],)


def test_of_records_without_batches_the_first_losses_alone_are_compared() -> None:
    before = replace(REFERENCE, batches=())
    assert verdict_of(Precision.BF16, (2.3, 9.0), reference=before).outcome is Outcome.OK
    assert verdict_of(Precision.BF16, (2.4, 2.2), reference=before).outcome is Outcome.INVALID


def test_fp16_is_held_to_one_percent() -> None:
    assert verdict_of(Precision.BF16, (2.335, 2.2, 2.1, 2.0)).outcome is Outcome.OK
    assert verdict_of(Precision.FP16, (2.335, 2.2, 2.1, 2.0)).outcome is Outcome.INVALID


@pytest.mark.parametrize(("digest", "gap"), [(None, ParityGap.UNKNOWN_START), ("other", ParityGap.NO_REFERENCE)])
def test_parity_is_not_claimed_where_the_runs_did_not_begin_alike(digest: str | None, gap: ParityGap) -> None:
    verdict = verdict_of(Precision.BF16, (9.0, 9.0, 9.0), digest=digest)
    assert verdict.outcome is Outcome.OK
    assert verdict.parity_gap is gap and verdict.notes == (NOT_CLAIMED[gap],)


def test_the_scripts_own_format_is_not_ours_to_judge() -> None:
    verdict = verdict_of(Precision.FP32, (9.0, 9.0, 9.0))
    assert verdict.outcome is Outcome.OK
    assert verdict.notes == ()


def test_references_are_completed_trials_in_fp32_whose_start_is_known() -> None:
    observed = {"precision": "fp32"}
    seen = rank(first_losses=FP32, first_batches=BATCHES, start_digest="same", observed=observed)
    result = TrialResult(outcome=Outcome.OUT_OF_MEMORY, ranks=(seen,))
    assert references_of(result) == ()
    verdict = judge(job(), ending(), [rank()])
    complete = replace(result, outcome=Outcome.OK, measurement=verdict.measurement)
    assert references_of(complete) == (REFERENCE,)
    lower = {"precision": "fp32", "matmul_precision": "medium"}
    for changes in ({"start_digest": None}, {"observed": {"precision": "bf16"}}, {"observed": lower}):
        assert references_of(replace(complete, ranks=(replace(seen, **changes),))) == ()
