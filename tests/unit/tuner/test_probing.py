from __future__ import annotations

import pytest

from autotune.model.facts import LossReduction
from autotune.tuner.probing import classify_reduction


def classify(whole, parts, whole_norm=1.0, mean_scaled_norm=1.0):
    return classify_reduction(
        whole_loss=whole, part_losses=parts, whole_norm=whole_norm, mean_scaled_norm=mean_scaled_norm
    )


def test_a_mean_loss_has_parts_like_the_whole():
    assert classify(2.3, (2.2, 2.4)) is LossReduction.MEAN


def test_a_summed_loss_has_parts_that_add_up():
    assert classify(140.0, (72.0, 68.0), mean_scaled_norm=0.5) is LossReduction.SUM


@pytest.mark.parametrize("parts", [(4.0, 4.2), (0.3, 0.2), (-2.3, -2.3)])
def test_parts_that_do_neither_are_unknown(parts):
    assert classify(2.3, parts) is LossReduction.UNKNOWN


def test_gradients_that_contradict_the_losses_are_unknown():
    """A script that divides its loss by the batch size it was started with has losses like a sum of its own."""
    assert classify(2.3, (2.3, 2.3), mean_scaled_norm=2.0) is LossReduction.UNKNOWN


def test_a_loss_of_zero_says_nothing():
    assert classify(0.0, (0.0, 0.0)) is LossReduction.UNKNOWN


def test_without_norms_the_losses_decide():
    assert classify(2.3, (2.3, 2.3), None, None) is LossReduction.MEAN
