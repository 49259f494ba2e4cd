"""Copies that do not wait: which calls of `Tensor.to` ask CUDA about their memory, and which are changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autotune.trial.apply import environment_seams


class Pinned:
    """A tensor of the host, by what the seam looks at; it counts how often CUDA was asked about its memory."""

    is_cpu = True

    def __init__(self) -> None:
        self.num_questions = 0

    def is_pinned(self) -> bool:
        self.num_questions += 1
        return True


def call(*args: Any, **kwargs: Any) -> tuple[dict[str, Any], int]:
    """Keywords that reach torch's own `to`, and the number of questions to CUDA."""
    tensor, reached = Pinned(), {}
    to = environment_seams.CopyCount().to_without_waiting(lambda *_, **given: reached.update(given))
    to(tensor, *args, **kwargs)  # type: ignore[arg-type]
    return reached, tensor.num_questions


@pytest.mark.parametrize("target", ["cuda", "cuda:1", 0, torch.device("cuda"), torch.device("cuda", 1)])
def test_a_copy_to_cuda_does_not_wait(target: Any) -> None:
    assert call(target) == ({"non_blocking": True}, 1)
    assert call(device=target) == ({"device": target, "non_blocking": True}, 1)
    assert call(target, non_blocking=False) == ({"non_blocking": False}, 0)


@pytest.mark.parametrize("target", [torch.float16, "cpu", "meta", torch.device("cpu"), torch.zeros(1), None])
def test_a_conversion_on_the_host_asks_nothing_of_cuda(target: Any) -> None:
    assert call(target) == ({}, 0)
    assert call(dtype=target) == ({"dtype": target}, 0)
    assert call(device=target) == ({"device": target}, 0)


def test_copies_that_do_not_wait_are_counted_and_the_scripts_own_are_not() -> None:
    count, tensor = environment_seams.CopyCount(), Pinned()
    to = count.to_without_waiting(lambda *_, **__: None)
    to(tensor, "cpu")  # type: ignore[arg-type]
    to(tensor, "cuda", non_blocking=True)  # type: ignore[arg-type]
    assert count.num_copies == 0
    to(tensor, "cuda")  # type: ignore[arg-type]
    count.cuda_without_waiting(lambda *_, **__: None)(tensor)  # type: ignore[arg-type]
    assert count.num_copies == 2
