"""A training step that the script compiles runs through the seams without being compiled together with them."""

from __future__ import annotations

import sys

import pytest
import torch

from autotune.trial.step.losses import LossWatch
from autotune.trial.step.roots import Roots
from autotune.trial.step.steps import Steps
from autotune.trial.torch import compiler_exclusion
from autotune.trial.torch.compiler_exclusion import keep_out_compiler


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_compiled_training_step_is_built_as_often_as_without_the_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    def frames_of(num_steps: int) -> int:
        torch.compiler.reset()
        counters = torch._dynamo.utils.counters
        counters.clear()
        weight = torch.ones(4, requires_grad=True)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = (weight * x).sum()
            loss.backward()
            return x + 1.0

        compiled = torch.compile(step, backend="eager")
        for _ in range(num_steps):
            compiled(torch.ones(4))
        return int(counters["frames"]["total"])

    frames_of(12)  # the first function that is compiled in a process builds what others find built
    plain = frames_of(12)
    steps = Steps()
    watch = LossWatch(steps, Roots())
    watch.install()
    keep_out_compiler()
    monkeypatch.setattr(torch.autograd, "backward", steps._wrap_backward(torch.autograd.backward))
    assert frames_of(12) == plain
    assert steps.num_backwards == 12
    assert watch.first_losses == (4.0,) * 8


def test_an_older_torch_is_told_by_the_name_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C._dynamo import eval_frame

    told = []
    monkeypatch.setattr(compiler_exclusion, "_excluded", set())
    monkeypatch.delattr(eval_frame, "set_code_exec_strategy", raising=False)
    monkeypatch.setattr(eval_frame, "skip_code", told.append, raising=False)
    keep_out_compiler()
    assert Steps.stepped.__code__ in told
    told.clear()
    keep_out_compiler()
    assert told == []


def test_a_torch_that_keeps_nothing_out_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_exclusion, "_excluded", set())
    monkeypatch.setitem(sys.modules, "torch._C._dynamo", None)
    keep_out_compiler()
