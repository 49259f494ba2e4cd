"""Calls of a model that a CUDA graph could not serve: inputs of several shapes, and outputs beyond a step."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from autotune.trial.probe.root_calls import RootCalls
from autotune.trial.step.steps import Steps


class Job:
    """A loop over a model that counts its backward passes."""

    def __init__(self) -> None:
        self.counts = SimpleNamespace(num_backwards=0)
        self.model: torch.nn.Module = torch.nn.Linear(4, 4)
        self.calls = RootCalls(cast(Steps, self.counts))
        self.calls.attach(self.model)

    def train(self, *shapes: tuple[int, ...], keep: Callable[[torch.Tensor], Any] = lambda output: None) -> RootCalls:
        kept = []
        for shape in shapes:
            output = self.model(torch.randn(shape))
            kept.append(keep(output))
            output.sum().backward()
            self.counts.num_backwards += 1
        del kept
        return self.calls


def test_a_usual_loop_keeps_nothing_and_has_one_shape() -> None:
    calls = Job().train(*[(8, 4)] * 6, keep=lambda output: output.argmax().item())
    assert not calls.keeps_outputs and not calls.inputs_vary


@pytest.mark.parametrize(
    "keep",
    [lambda output: output, lambda output: output.detach(), lambda output: output[0]],
    ids=["output", "part", "view"],
)
def test_outputs_and_views_of_outputs_in_a_list_are_kept(keep: Any) -> None:
    assert Job().train(*[(8, 4)] * 6, keep=keep).keeps_outputs


def test_copies_of_outputs_are_free() -> None:
    assert not Job().train(*[(8, 4)] * 6, keep=lambda output: output.detach().clone()).keeps_outputs


def test_an_output_handed_to_the_next_step_is_kept() -> None:
    job, state = Job(), torch.randn(8, 4)
    for _ in range(4):
        state = job.model(state.detach())
        state.sum().backward()  # type: ignore[no-untyped-call]
        job.counts.num_backwards += 1
    assert job.calls.keeps_outputs


def test_an_output_that_is_the_input_or_a_weight_does_not_count() -> None:
    job = Job()
    job.model = torch.nn.Identity()
    job.calls.attach(job.model)
    batch = torch.randn(8, 4, requires_grad=True)
    for _ in range(4):
        job.model(batch).sum().backward()
        job.counts.num_backwards += 1
    assert not job.calls.keeps_outputs


def test_calls_without_gradients_are_left_out() -> None:
    job = Job()
    with torch.no_grad():
        kept = [job.model(torch.randn(size, 4)) for size in (1, 2, 3, 4)]
    calls = job.train(*[(8, 4)] * 4)
    assert kept and not calls.keeps_outputs and not calls.inputs_vary


@pytest.mark.parametrize(
    ("shapes", "vary"),
    [
        ([(8, 4), (8, 4), (3, 4)], False),
        ([(8, 4), (7, 4), (6, 4)], True),
        ([(8, 2, 4), (8, 3, 4)], True),
    ],
)
def test_shapes_vary_beyond_a_smaller_last_batch(shapes: list[tuple[int, ...]], vary: bool) -> None:
    assert Job().train(*shapes).inputs_vary is vary


@pytest.mark.parametrize(
    ("batches", "vary"),
    [
        ([[(2, 8, 4), (6, 3, 4)]] * 5, False),
        ([[(2, 8, 4), (6, 3, 4)]] * 4 + [[(1, 8, 4), (3, 3, 4)]], False),
        ([[(2, 8, 4)], [(2, 5, 4)], [(2, 7, 4)]], True),
        ([[(2, 8, 4), (6, 3, 4)], [(2, 8, 4), (6, 2, 4)]], True),
    ],
    ids=["crops of two sizes", "a smaller last batch", "lengths", "crops of random sizes"],
)
def test_the_work_of_a_batch_differs_only_where_its_shapes_differ_from_batch_to_batch(
    batches: list[list[tuple[int, ...]]], vary: bool
) -> None:
    job = Job()
    for shapes in batches:
        sum(job.model(torch.randn(shape)).sum() for shape in shapes).backward()  # type: ignore[union-attr]
        job.counts.num_backwards += 1
    assert job.calls.inputs_vary and job.calls.batches_vary is vary


@pytest.mark.parametrize(
    ("shapes", "recur"),
    [
        ([(8, 4)] * 6, False),
        ([(8, 2, 4), (8, 3, 4)] * 3, True),
        ([(8, 2, 4), (8, 2, 4), (8, 3, 4)] * 3, True),
        ([(8, 2, 4), (8, 3, 4)] * 2, False),
        ([(8, 2, 4)] * 5 + [(8, 3, 4)] * 5, False),
        ([(8, size, 4) for size in (1, 2, 3, 4, 5)] * 3, False),
        ([(8, 2, 4), (8, 3, 4)] * 3 + [(5, 2, 4)], False),
    ],
    ids=["one shape", "two scales", "twice and once", "few steps", "resized", "many scales", "a smaller last batch"],
)
def test_a_few_shapes_that_come_back_in_every_step_recur(shapes: list[tuple[int, ...]], recur: bool) -> None:
    assert Job().train(*shapes).inputs_recur is recur
