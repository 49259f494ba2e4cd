"""When a probe has seen enough of a script's steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.trial.probe.script_detector import NUM_STEPS, ScriptDetector, _usual_step_s


def has_seen_enough(*ends_s: float, is_unclear: bool = False, has_batches: bool = False) -> bool:
    """Whether steps that ended at these times are enough."""
    detector: Any = SimpleNamespace(
        _step_ends=list(ends_s),
        _num_steps=NUM_STEPS,
        _steps=SimpleNamespace(has_optimizer=True, num_backwards=len(ends_s)),
        _loaders=SimpleNamespace(may_keep_first_batch=is_unclear),
        has_batches=has_batches,
    )
    look: Any = ScriptDetector.has_seen_enough
    return bool(look.fget(detector))


@pytest.mark.parametrize(
    ("ends_s", "is_enough"),
    [
        ((0.0, 0.1, 0.2, 0.3, 0.4), False),
        ((0.0, 0.1, 0.2, 0.3, 0.4, 0.5), True),
        ((0.0, 1.4, 2.8), False),
        ((0.0, 1.4, 2.8, 4.2), True),
        ((0.0, 5.0), False),
        ((0.0, 5.0, 10.0), True),
    ],
)
def test_six_steps_are_enough_and_three_where_they_take_seconds(ends_s: tuple[float, ...], is_enough: bool) -> None:
    assert has_seen_enough(*ends_s) is is_enough


def test_a_script_with_batches_is_watched_until_two_of_them_are_old() -> None:
    assert not has_seen_enough(0.0, 1.4, 2.8, 4.2, has_batches=True)
    assert has_seen_enough(0.0, 1.4, 2.8, 4.2, 5.6, has_batches=True)
    assert has_seen_enough(0.0, 11.0, 22.0, has_batches=True), "a probe is not to take minutes"


def test_while_it_is_unclear_whether_the_first_batch_is_kept_the_probe_goes_on_but_not_for_long() -> None:
    assert not has_seen_enough(0.0, 1.4, 2.8, 4.2, is_unclear=True)
    assert not has_seen_enough(*(0.1 * number for number in range(NUM_STEPS)), is_unclear=True)
    assert has_seen_enough(0.0, 10.0, 20.1, is_unclear=True)


@pytest.mark.parametrize(
    ("ends_s", "evaluated", "step_s"),
    [
        ((0.0, 13.3, 13.6), {1}, 0.3),
        ((0.0, 0.001, 0.002, 0.603), set(), 0.201),
        ((0.0, 0.05, 2.0, 2.05, 4.0), set(), 1.0),
        ((0.0, 0.4, 0.8), {0, 1, 2}, 0.4),
        ((4.0,), {0}, 0.0),
    ],
    ids=["an evaluation", "a host that runs ahead", "two workers", "a teacher in each step", "one step"],
)
def test_an_evaluation_between_two_steps_is_no_part_of_a_step(
    ends_s: tuple[float, ...], evaluated: set[int], step_s: float
) -> None:
    """A text classifier evaluates at step 0 for 13 s: its steps of 0.3 s were taken for 7 s, and no trial measured."""
    assert _usual_step_s(ends_s, evaluated) == pytest.approx(step_s)
