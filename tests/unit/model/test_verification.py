"""What the figures of a verification say about the published ratio."""

import pytest

from autotune.model.verification import Finding, Turn, Verification


def verification(claimed=(1.4, 1.3, 1.5), real=(1.38, 1.3, 1.46), **changes):
    turns = (
        Turn(round=0, is_tuned=False, samples_per_second=100.0, window_s=30.0),
        Turn(round=0, is_tuned=True, samples_per_second=139.0, window_s=30.0, disturbances=("Others were busy.",)),
    )
    values = {"window_s": 30.0, "turns": turns, "at": "2026-11-22T20:00:00+00:00", "autotune": "0.1.0"}
    return Verification(claimed=claimed, real=real, **{**values, **changes})


@pytest.mark.parametrize(
    ("real", "finding"),
    [
        ((1.38, 1.30, 1.46), Finding.HELD),
        ((1.32, 0.95, 1.80), Finding.HELD),
        ((1.55, 1.35, 1.80), Finding.HELD),
        ((1.28, 1.15, 1.45), Finding.HELD),
        ((1.80, 1.70, 1.90), Finding.EXCEEDED),
        ((1.10, 1.05, 1.15), Finding.FELL_SHORT),
        ((0.92, 0.88, 0.96), Finding.SLOWER),
        ((1.10, 0.80, 1.50), Finding.UNCLEAR),
        ((1.15, 1.02, 1.31), Finding.UNCLEAR),
    ],
)
def test_a_real_ratio_holds_falls_short_or_stays_unclear(real, finding):
    assert verification(real=real).finding is finding


def test_only_a_real_ratio_within_the_published_interval_is_called_within():
    assert verification(real=(1.31, 1.2, 1.4)).is_within
    assert not verification(real=(1.29, 1.2, 1.4)).is_within


def test_a_verification_survives_the_database():
    found = verification()
    assert Verification.from_document(found.document()) == found
    assert found.document()["finding"] == "held"


def test_an_impossible_ratio_is_refused():
    with pytest.raises(ValueError, match="is not within"):
        verification(real=(2.0, 1.0, 1.5))
