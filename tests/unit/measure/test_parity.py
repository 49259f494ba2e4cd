import math

import pytest

from autotune.measure.parity import LossReference, largest_departure, matching


def test_the_largest_departure_is_relative_to_the_reference_there():
    found = largest_departure([4.0, 2.1, 4.4], [4.0, 2.0, 4.0])
    assert found is not None
    assert (found.index, found.loss, found.reference) == (2, 4.4, 4.0)
    assert found.ratio == pytest.approx(0.1)


def test_a_loss_that_has_nearly_vanished_is_measured_by_the_first_one():
    found = largest_departure([2.0, 0.02, 0.001], [2.0, 0.01, 0.001])
    assert found is not None
    assert found.ratio == pytest.approx(0.005)


def test_a_loss_that_is_not_finite_departs_without_limit():
    found = largest_departure([2.0, math.nan, 1.0], [2.0, 1.5, 1.0])
    assert found is not None
    assert found.ratio == math.inf


def test_what_follows_after_the_reference_became_unstable_is_not_compared():
    """A learning rate that is too large for the first steps makes the losses of any two runs part."""
    found = largest_departure([2.9, 3.4, 10.7], [2.9, 3.2, 15.5])
    assert found is not None
    assert (found.index, found.ratio) == (0, 0.0)
    assert largest_departure([3.2, 3.4, 10.7], [2.9, 3.2, 15.5]).ratio == pytest.approx(0.3 / 2.9)


@pytest.mark.parametrize(("losses", "reference"), [([], [1.0]), ([1.0] * 3, [0.0, 1.0, 1.0]), ([1.0], [math.inf])])
def test_no_losses_and_a_reference_without_a_scale_tell_nothing(losses, reference):
    assert largest_departure(losses, reference) is None


def test_only_a_run_that_began_alike_is_a_reference():
    references = [LossReference(start_digest="a", losses=(1.0,)), LossReference(start_digest="b", losses=(2.0,))]
    assert matching(references, "b") is references[1]
    assert matching(references, "c") is None
    assert matching(references, None) is None
