import math

import pytest

from autotune.measure.loss_parity import LossReference, departure, matching

SLOW = [4.0, 3.9, 3.8, 3.7]
"""Losses of a run whose steps change little."""
FAST = [7.0, 6.9, 6.4, 6.2, 5.77]
"""Losses of a ResNet-50 at a learning rate of 0.1, over one batch."""


def test_losses_that_agree_in_every_pass_are_no_departure():
    assert departure([4.0, 3.91, 3.79, 3.75], SLOW, 0.02) is None


def test_a_departure_names_the_first_pass_and_is_relative_to_the_start():
    found = departure([4.0, 3.9, 3.6, 3.1], SLOW, 0.02)
    assert found is not None
    assert (found.index, found.loss, found.reference) == (2, 3.6, 3.8)
    assert found.ratio == pytest.approx(0.05)


def test_the_first_pass_has_the_same_weights_and_no_excuse():
    assert departure([7.2, *FAST[1:]], FAST, 0.02) is not None


def test_a_loss_that_is_not_finite_departs_without_limit():
    found = departure([4.0, math.nan, 1.0], SLOW, 0.02)
    assert found is not None
    assert found.ratio == math.inf


def test_after_a_fast_change_two_runs_part_in_any_format():
    assert departure([7.0, 6.9, 6.5, 6.6, 6.184], FAST, 0.02) is None
    assert departure([7.0, 6.9, 6.3, 6.9, 7.7495], FAST, 0.02) is None
    assert departure([2.9, 3.4, 10.7], [2.9, 3.2, 15.5], 0.02) is None


CIFAR = [2.3299, 2.2461, 2.2648, 2.2475, 2.1765, 2.127, 2.0314]
"""Losses of a CIFAR network at a learning rate of 0.1, over one batch, in fp32."""


@pytest.mark.parametrize(
    "losses",
    [
        [2.3299, 2.2515, 2.2719, 2.2397, 2.142, 2.0338, 1.9098],  # fp32 too, with channels_last
        [2.33, 2.2447, 2.2583, 2.1962, 2.1108, 2.0338, 1.9554],  # bf16 and channels_last
        [2.3307, 2.2452, 2.2631, 2.2454, 2.1735, 2.0905, 1.9741],  # bf16
    ],
)
def test_runs_that_part_as_two_runs_in_fp32_do_are_no_departure(losses):
    assert departure(losses, CIFAR, 0.02) is None


def test_a_loss_that_moves_up_and_down_excuses_no_run_that_moves_twice_as_far():
    twice = [CIFAR[0] - 2.2 * (CIFAR[0] - loss) for loss in CIFAR]
    found = departure(twice, CIFAR, 0.02)
    assert found is not None and not found.is_at_rest


def test_right_after_a_fast_change_the_change_itself_is_compared():
    """A gradient that is twice too large moves the loss twice as far."""
    found = departure([7.0, 6.9, 5.7, 5.0, 4.5], FAST, 0.02)
    assert found is not None and found.index == 2 and not found.is_at_rest


def test_a_run_has_to_move_where_its_reference_moves():
    """Weights that were cast once and kept stay as they were, whatever the optimizer does."""
    found = departure([7.0, 6.95, 6.75, 6.9, 6.9], FAST, 0.02)
    assert found is not None and found.is_at_rest
    assert (found.index, found.reference) == (4, 5.77)


def test_a_loss_that_has_nearly_vanished_has_the_scale_of_the_first_one():
    assert departure([2.0, 1.95, 0.02], [2.0, 1.95, 0.001], 0.02) is None


@pytest.mark.parametrize(("losses", "reference"), [([], [1.0]), ([1.0] * 3, [0.0, 1.0, 1.0]), ([1.0], [math.inf])])
def test_no_losses_and_a_reference_without_a_scale_tell_nothing(losses, reference):
    assert departure(losses, reference, 0.02) is None


def test_only_a_run_that_began_alike_is_a_reference():
    references = [LossReference(start_digest="a", losses=(1.0,)), LossReference(start_digest="b", losses=(2.0,))]
    assert matching(references, "b") is references[1]
    assert matching(references, "c") is None
    assert matching(references, None) is None
