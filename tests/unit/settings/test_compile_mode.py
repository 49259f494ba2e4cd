"""Modes of torch.compile: handed to the compiler, read back, and refused where CUDA graphs cannot hold the batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from autotune.settings import Settings
from autotune.settings.compile_mode import GRAPHS, SETTING, CompileMode
from autotune.space.derive import derive_space
from autotune.space.refusals import why_not_unedited
from autotune.trial.apply.model_seams import MODEL_SEAMS
from autotune.trial.apply.observed import model_settings
from tests.unit.facts import cpu_machine, gpu_machine, loader_facts, script_facts, search_spec

SEAM = MODEL_SEAMS["compile"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of all calls of torch.compile."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "compile", lambda call, **options: found.append(options) or call)
    return found


@pytest.mark.parametrize("mode", CompileMode)
def test_a_mode_is_handed_to_the_compiler_and_read_back(asked: list[dict[str, Any]], mode: CompileMode) -> None:
    model = torch.nn.Linear(2, 2)
    SEAM.action(Settings(compile=True, compile_mode=mode))(model)
    assert asked == [{} if mode is CompileMode.DEFAULT else {"mode": mode.value}]
    assert model_settings([model], None)["compile_mode"] == mode.value
    assert SEAM.forget is not None
    SEAM.forget(model)
    assert "compile_mode" not in model_settings([model], None)


def test_each_mode_is_built_once_in_a_process_that_returns_to_the_mode(asked: list[dict[str, Any]]) -> None:
    from autotune.trial.apply.environment_seams import graph_kind

    model = torch.nn.Linear(2, 2)
    for mode in (*CompileMode, *CompileMode):
        settings = Settings(compile=True, compile_mode=mode)
        SEAM.action(settings)(model, kind=graph_kind(settings))
    assert len(asked) == len(CompileMode)


def test_a_mode_without_compilation_is_inert() -> None:
    assert Settings(compile_mode=GRAPHS[0]).canonical(device_is_cpu=False) == Settings()


def test_cuda_graphs_are_refused_by_name_where_batches_differ_in_size() -> None:
    facts = script_facts(device="cuda", loader=loader_facts(batches_vary=True))
    space = derive_space(facts, gpu_machine(), search_spec())
    assert space.allowed["compile_mode"] == ("default", "max-autotune-no-cudagraphs")
    assert "one size" in dict(space.refused)["compile_mode=reduce-overhead"]
    own = Settings(batch_size=64)
    asked = replace(own, compile=True, compile_mode=CompileMode.MAX_AUTOTUNE)
    assert "one size" in why_not_unedited(asked, own, facts)["compile_mode"]


def test_modes_are_tried_on_a_gpu_and_on_a_cpu_only_if_asked_for() -> None:
    on_cuda = derive_space(script_facts(device="cuda"), gpu_machine(), search_spec())
    assert len(on_cuda.allowed["compile_mode"]) == len(CompileMode)
    assert derive_space(script_facts(), cpu_machine(), search_spec()).allowed["compile_mode"] == ("default",)
    wish = search_spec(ranges=(("compile_mode", "default,max-autotune"), ("compile", "true")))
    on_cpu = derive_space(script_facts(), cpu_machine(), wish)
    assert on_cpu.allowed["compile_mode"] == ("default", "max-autotune")


def test_the_trainers_argument_names_the_mode_of_a_compiled_model_alone() -> None:
    trainer = SETTING.frameworks["hf"]
    assert trainer(Settings(compile=True, compile_mode=CompileMode.MAX_AUTOTUNE), False) == {
        "torch_compile_mode": "max-autotune"
    }
    assert trainer(Settings(compile_mode=CompileMode.MAX_AUTOTUNE), False) == {}
