"""Backward passes as scripts call them, and as a later torch may let them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autotune.trial.step.steps import MAX_OTHER_STEPS, Steps


def watched() -> tuple[Steps, list[tuple[tuple[Any, ...], dict[str, Any]]], Any]:
    steps, calls = Steps(), list[tuple[tuple[Any, ...], dict[str, Any]]]()

    def original(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))

    return steps, calls, steps._wrap_backward(original)


def test_backward_is_called_as_it_was_and_counted() -> None:
    steps, calls, backward = watched()
    loss, share = torch.ones(()), torch.ones(())
    backward(loss, share, True, create_graph=True, inputs=[loss])
    backward(tensors=loss, retain_graph=True)
    assert calls == [((loss, share, True, True, None, [loss]), {}), ((loss, None, True, False, None, None), {})]
    assert steps.num_backwards == 2


@pytest.mark.filterwarnings("ignore:.*torch.utils.checkpoint.*")
def test_the_passes_within_a_reentrant_checkpoint_are_no_passes_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    monkeypatch.setattr(torch.autograd, "backward", steps._wrap_backward(torch.autograd.backward))
    hidden, layer = torch.ones(2, 4, requires_grad=True), torch.nn.Linear(4, 4)
    for _ in range(3):
        hidden = torch.utils.checkpoint.checkpoint(layer, hidden, use_reentrant=True)
    hidden.sum().backward()
    assert steps.num_backwards == 1


def test_an_argument_that_backward_gets_one_day_reaches_it() -> None:
    _, calls, backward = watched()
    backward(torch.ones(()), accumulate="later")
    assert calls[0][1] == {"accumulate": "later"}


def test_listeners_are_told_of_the_loss_and_not_of_what_they_let_pass() -> None:
    steps, _, backward = watched()
    heard: list[Any] = []
    steps.on_backward.append(heard.append)
    loss = torch.ones(())
    backward(loss)
    backward([loss, loss])
    steps.let_pass(3)
    for _ in range(3):
        backward(loss)
    assert heard == [loss, None, loss]


@pytest.mark.parametrize("is_by_hand", [True, False])
def test_where_parameters_are_updated_by_hand_every_pass_is_a_step_and_none_is_let_pass(is_by_hand: bool) -> None:
    steps, _, backward = watched()
    steps.is_by_hand = is_by_hand
    steps.let_pass(5)
    for _ in range(4):
        backward(torch.ones(()))
    assert steps.num_updates == (4 if is_by_hand else 0)


def optimizers(num: int) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD([torch.ones(1, requires_grad=True)]) for _ in range(num)]


def test_an_optimizer_that_the_script_keeps_and_steps_no_more_gives_way_to_the_next() -> None:
    steps, (head, whole) = Steps(), optimizers(2)
    for optimizer in [head] * 10 + [whole] * (MAX_OTHER_STEPS + 20):
        steps.stepped(optimizer)
    assert steps.primary is whole
    assert steps.num_steps == steps.num_updates == 10 + MAX_OTHER_STEPS + 20


def test_optimizers_that_step_more_often_than_the_counted_one_do_not_take_its_place() -> None:
    steps, (generator, critic) = Steps(), optimizers(2)
    for optimizer in ([generator] + [critic] * MAX_OTHER_STEPS) * 3:
        steps.stepped(optimizer)
    assert steps.primary is generator
    assert steps.num_updates == 3


def stepped_by_closure(counts: bool | None) -> tuple[Steps, int]:
    """Two steps of LBFGS, and the number of evaluations."""
    steps = Steps()
    steps.counts_evaluations = None if counts is None else lambda: counts
    parameter = torch.full((3,), 5.0, requires_grad=True)
    optimizer = torch.optim.LBFGS([parameter], lr=0.1, max_iter=4)
    step = steps._wrap_step(torch.optim.LBFGS.step)
    num_evaluations = 0

    def closure() -> torch.Tensor:
        nonlocal num_evaluations
        num_evaluations += 1
        optimizer.zero_grad()
        loss = (parameter**4).sum()
        loss.backward()
        return loss

    step(optimizer, closure)
    step(optimizer, closure=closure)
    return steps, num_evaluations


def test_every_evaluation_of_a_closure_is_a_step_where_evaluations_count() -> None:
    steps, num_evaluations = stepped_by_closure(True)
    assert steps.num_updates == steps.num_steps == num_evaluations == 8
    assert steps.has_counted_evaluations


@pytest.mark.parametrize("counts", [None, False])
def test_a_step_with_a_closure_is_one_step_where_evaluations_do_not_count(counts: bool | None) -> None:
    steps, num_evaluations = stepped_by_closure(counts)
    assert (steps.num_updates, num_evaluations) == (2, 8)
    assert steps.used_closure and not steps.has_counted_evaluations
