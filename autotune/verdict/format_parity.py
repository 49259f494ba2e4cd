"""Whether a trial in another number format trains what the script's own format trains. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.measure.loss_parity import Departure, LossReference, departure, matching
from autotune.model.result import ParityGap, RankResult, TrialResult
from autotune.protocol.job import TrialJob
from autotune.settings import Precision
from autotune.settings.matmul_precision import MatmulPrecision

TOLERANCES: Mapping[str, float] = {
    Precision.BF16: 0.02,
    Precision.FP16: 0.01,
    Precision.TF32: 0.02,
    MatmulPrecision.HIGH: 0.02,
    MatmulPrecision.MEDIUM: 0.02,
}
"""Largest relative departure of a loss from the own format's while those losses change slowly. bf16 has 8 bits of
precision, fp16 and tf32 have 11; a tenth of the limit is usual."""
FULL = (None, MatmulPrecision.HIGHEST.value)
"""Readings of `matmul_precision` in a trial in fp32; trials of older versions have no reading."""
NOT_CLAIMED: Mapping[ParityGap, str] = {
    ParityGap.UNKNOWN_START: (
        "Parity with fp32 is not claimed: the forward pass draws random numbers, or its start could not be seen."
    ),
    ParityGap.NO_REFERENCE: (
        "Parity with fp32 is not claimed: no trial in fp32 began with the same weights and the same batch."
    ),
}
"""Notes for the user."""


def references_of(result: TrialResult, own: Precision = Precision.FP32) -> tuple[LossReference, ...]:
    """References for later trials from a trial in fp32 or in the script's own format.

    Returns:
        One reference per rank with known initial weights.
    """
    full = (Precision.FP32.value, own.value)
    if not result.outcome.is_complete:
        return ()
    return tuple(
        LossReference(start_digest=rank.start_digest, losses=rank.first_losses, batches=rank.first_batches)
        for rank in result.ranks
        if rank.start_digest is not None
        and rank.observed.get("precision") in full
        and rank.observed.get("matmul_precision") in FULL
    )


def why_no_parity(job: TrialJob, ranks: Sequence[RankResult]) -> str:
    """How the first losses depart from the script's own, with the numbers; empty when the format trains alike."""
    tolerance = _tolerance(job)
    if tolerance is None or job.script_settings is None:
        return ""
    own = job.script_settings.precision
    for rank in ranks:
        reference = matching(job.request.references, rank.start_digest)
        found = _departure(rank, reference, tolerance) if reference is not None else None
        if found is not None and found.is_at_rest:
            return (
                f"The loss stays near {rank.first_losses[0]:.5g} while in {own} the loss comes to "
                f"{found.reference:.5g} in pass {found.index + 1}: the model does not train in {_format(job)}."
            )
        if found is not None:
            return (
                f"The loss of pass {found.index + 1} is {found.loss:.5g} where {own} has {found.reference:.5g}: a "
                f"difference of {found.ratio:.1%}, where {found.allowed_ratio:.1%} is usual at most for {_format(job)}."
            )
    return ""


def _departure(rank: RankResult, reference: LossReference, tolerance: float) -> Departure | None:
    """The first pass on the same batches in which a rank departs from the reference; None when both train alike."""
    num_comparable = reference.num_comparable(rank.first_batches)
    return departure(rank.first_losses[:num_comparable], reference.losses[:num_comparable], tolerance)


def parity_gap(job: TrialJob, ranks: Sequence[RankResult]) -> ParityGap | None:
    """The reason for not comparing losses; None when compared, or when the format is the script's own."""
    if _tolerance(job) is None:
        return None
    if any(rank.start_digest is None for rank in ranks):
        return ParityGap.UNKNOWN_START
    found = [(matching(job.request.references, rank.start_digest), rank) for rank in ranks]
    if any(reference is None or not reference.num_comparable(rank.first_batches) for reference, rank in found):
        return ParityGap.NO_REFERENCE
    return None


def _format(job: TrialJob) -> Precision | MatmulPrecision | None:
    """The number format of a trial, where it differs from the script's own; None for the script's own."""
    asked, own = job.request.settings, job.script_settings
    if asked is None or own is None:
        return None
    if asked.precision is not own.precision:
        return asked.precision
    return asked.matmul_precision if asked.matmul_precision is not own.matmul_precision else None


def _tolerance(job: TrialJob) -> float | None:
    """None where the trial's number format is not ours to answer for."""
    number_format = _format(job)
    return TOLERANCES.get(number_format) if number_format is not None else None
