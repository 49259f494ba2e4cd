"""The losses of the window: each is looked at, wherever it is and whatever its shape."""

from __future__ import annotations

import math
import weakref

import pytest
import torch

from autotune.trial.step.losses import DEVICE_STRIDE, LossWatch
from autotune.trial.step.roots import Roots
from autotune.trial.step.steps import Steps


def watch_of(*losses: torch.Tensor, is_measuring: bool = True, step_s: float = 0.001, num_ahead: int = 1) -> LossWatch:
    """After these losses; the clock goes on where the host waits for the device, every `num_ahead` steps."""
    steps = Steps()
    watch = LossWatch(steps, Roots(), now=lambda: 7.0 + step_s * num_ahead * (steps.num_backwards // num_ahead))
    watch.install()
    watch.measure(is_measuring)
    backward = steps._wrap_backward(lambda *_: None)
    for loss in losses:
        backward(loss)
    return watch


FINE, BROKEN = torch.tensor(0.5, requires_grad=True), torch.tensor(math.nan)


@pytest.mark.parametrize("broken", [BROKEN, torch.tensor(math.inf), torch.tensor([1.0, math.nan]), BROKEN.half()])
def test_one_loss_of_the_window_that_is_not_finite_is_enough(broken: torch.Tensor) -> None:
    assert watch_of(*[FINE] * 30).is_finite
    assert not watch_of(FINE, broken, *[FINE] * 20).is_finite
    assert not watch_of(*[FINE] * 20, broken, *[FINE] * 20).is_finite


def test_a_sum_beyond_half_precision_is_finite() -> None:
    assert watch_of(torch.full((4,), 60000.0, dtype=torch.float16)).is_finite


class Elsewhere(torch.Tensor):
    """A loss that is on a device."""

    is_cpu = False  # type: ignore[assignment]
    num_sums = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Elsewhere.num_sums += getattr(func, "__name__", "") == "add_"
        return super().__torch_function__(func, types, args, kwargs or {})


def elsewhere(loss: torch.Tensor) -> torch.Tensor:
    return loss.detach().as_subclass(Elsewhere)


@pytest.mark.parametrize("broken", [BROKEN, torch.tensor([1.0, math.inf])])
def test_on_a_device_too_weights_that_are_not_finite_any_more_are_enough(broken: torch.Tensor) -> None:
    fine = elsewhere(FINE)
    assert watch_of(*[fine] * 30).is_finite
    assert not watch_of(*[fine] * 20, *[elsewhere(broken)] * DEVICE_STRIDE).is_finite
    assert not watch_of(*[fine, elsewhere(broken)] * DEVICE_STRIDE).is_finite


@pytest.mark.parametrize("num_before", range(DEVICE_STRIDE))
def test_in_a_short_window_each_loss_is_looked_at_on_a_device_too(num_before: int) -> None:
    losses = [*[FINE] * num_before, BROKEN, *[FINE] * (DEVICE_STRIDE - num_before)]
    assert not watch_of(*map(elsewhere, losses)).is_finite


@pytest.mark.parametrize("pair", [(FINE, BROKEN), (BROKEN, FINE)])
def test_on_a_device_of_two_losses_per_step_either_has_its_turn(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    losses = [*[FINE] * 20, *[*pair] * DEVICE_STRIDE]
    assert not watch_of(*map(elsewhere, losses)).is_finite


def test_on_a_device_few_losses_are_summed() -> None:
    before = Elsewhere.num_sums
    watch_of(*[elsewhere(FINE)] * 10 * DEVICE_STRIDE)
    assert Elsewhere.num_sums - before == DEVICE_STRIDE + 9


def test_on_a_device_every_loss_of_long_steps_is_looked_at() -> None:
    before = Elsewhere.num_sums
    losses = [*[FINE] * 4 * DEVICE_STRIDE, BROKEN, *[FINE] * 4 * DEVICE_STRIDE]
    assert not watch_of(*map(elsewhere, losses), step_s=0.01).is_finite
    assert Elsewhere.num_sums - before == len(losses)


def test_on_a_device_that_the_host_is_ahead_of_long_steps_are_known_by_their_mean() -> None:
    losses = [*[FINE] * 20 * DEVICE_STRIDE, BROKEN, *[FINE] * 4 * DEVICE_STRIDE]
    assert not watch_of(*map(elsewhere, losses), step_s=0.02, num_ahead=5).is_finite


def test_losses_of_any_shape_are_finite() -> None:
    losses = (FINE, torch.tensor([0.5]), torch.ones(2, 3), torch.tensor(1.0, dtype=torch.bfloat16), torch.empty(0))
    assert watch_of(*losses).is_finite


WAVES = torch.tensor(0.5 + 0.5j, requires_grad=True), torch.tensor([0.5j, 2.0], requires_grad=True)


@pytest.mark.parametrize("where", [lambda loss: loss, lambda loss: elsewhere(loss)])
@pytest.mark.parametrize("wave", WAVES)
def test_complex_losses_are_looked_at_as_well(wave: torch.Tensor, where) -> None:
    watch = watch_of(*[where(wave)] * 10)
    assert watch.is_finite
    assert watch.first_losses == ((0.5,) * 8 if wave.dim() == 0 else ())
    assert not watch_of(where(wave), where(wave.detach() * complex(0.0, math.inf)), *[where(wave)] * 10).is_finite


def test_a_sum_beyond_single_precision_is_finite() -> None:
    assert watch_of(torch.full((4,), 1e39, dtype=torch.float64)).is_finite


def test_before_the_window_the_last_loss_alone_counts() -> None:
    assert watch_of(BROKEN, FINE, is_measuring=False).is_finite
    assert not watch_of(FINE, BROKEN, is_measuring=False).is_finite


def test_a_loss_from_before_the_window_does_not_count_once_that_runs() -> None:
    watch = watch_of(BROKEN, is_measuring=False)
    watch.measure(True)
    assert watch.is_finite


@pytest.mark.parametrize("where", [lambda loss: loss, lambda loss: elsewhere(loss)])
def test_the_first_losses_are_kept_though_the_window_begins_with_them(where) -> None:
    losses = [torch.tensor(float(number)) for number in range(20)]
    assert watch_of(*map(where, losses)).first_losses == tuple(map(float, range(8)))


def start_of(weights: torch.Tensor, batch: torch.Tensor, *, draws: bool = False) -> str | None:
    """What is said of a run that begins with these."""
    steps = Steps()
    watch = LossWatch(steps, Roots())
    watch.install()
    optimizer = torch.optim.SGD([torch.nn.Parameter(weights)], lr=0.1)
    steps._built.append(weakref.ref(optimizer))
    watch.next_batch({"x": batch})
    watch._before_forward(torch.nn.Identity())
    if draws:
        torch.rand(1)
    steps._wrap_backward(lambda *_: None)(FINE)
    return watch.start_digest


def batches_of(*events: torch.Tensor | str) -> tuple[int, ...]:
    """What is said of the batches before the first losses, of batches handed out, `pass`es and `unseen` batches."""
    steps = Steps()
    watch = LossWatch(steps, Roots())
    watch.install()
    backward = steps._wrap_backward(lambda *_: None)
    for event in events:
        if isinstance(event, torch.Tensor):
            watch.next_batch({"x": event})
        elif event == "pass":
            backward(FINE)
        else:
            watch.next_batches_unseen()
    return watch.first_batches


def test_passes_on_the_same_batches_are_known_however_often_a_batch_is_repeated() -> None:
    first, second = torch.ones(4, 3), torch.zeros(4, 3)
    early = batches_of(first, "pass", "pass", second, "pass", "pass")
    late = batches_of(first, "pass", first, "pass", first, "pass", second, "pass")
    assert early[:2] == late[:2] and early[2] == early[3] == late[3]
    assert len({early[0], early[2]}) == 2 and early[2] != late[2]
    assert batches_of(second, "pass", first, "pass")[1] != early[2]


def test_passes_after_a_batch_that_went_unseen_have_no_known_batches() -> None:
    first = torch.ones(4, 3)
    assert len(batches_of(first, "pass", "pass", "unseen", "pass", first, "pass")) == 2


def test_a_start_is_known_by_its_weights_and_its_batch() -> None:
    weights, batch = torch.arange(6.0).reshape(2, 3), torch.ones(4, 3)
    same = start_of(weights, batch)
    assert same is not None and same == start_of(weights.clone(), batch.clone())
    assert start_of(weights + 1, batch) != same
    assert start_of(weights, batch + 1) != same
    assert start_of(weights.reshape(3, 2), batch) != same


def test_a_start_in_which_random_numbers_are_drawn_is_not_known() -> None:
    assert start_of(torch.ones(2), torch.ones(2), draws=True) is None


def test_losses_of_steps_that_the_scaler_skipped_are_none_of_the_first_ones() -> None:
    """Under fp16 the first steps go into finding the scale: their losses come again."""
    steps = Steps()
    watch = LossWatch(steps, Roots())
    watch.install()
    backward = steps._wrap_backward(lambda *_: None)
    for loss, is_skipped in ((3.0, True), (3.0, True), (3.0, False), (2.0, True), (2.0, False), (1.0, False)):
        backward(torch.tensor(loss))
        if is_skipped:
            steps.skipped()
        else:
            steps.stepped(None)
    assert watch.first_losses == (3.0, 2.0, 1.0)
