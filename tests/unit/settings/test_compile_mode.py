"""Modes of torch.compile: handed to the compiler, read back, and refused where CUDA graphs cannot hold the batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from autotune.settings import Settings, graph_kind
from autotune.settings.compile_mode import GRAPHS, LEAST_TORCH_OF_REGIONS, SETTING, CompileMode
from autotune.settings.repeated_blocks import num_shapes, repeated_blocks
from autotune.space.derive import derive_space
from autotune.space.refusals import why_not_unedited
from autotune.trial.apply.model_seams import MODEL_SEAMS
from autotune.trial.apply.observed import model_settings
from autotune.trial.torch import torch_names
from tests.unit.facts import cpu_machine, gpu_machine, loader_facts, script_facts, search_spec

SEAM = MODEL_SEAMS["compile"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of all calls of torch.compile."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(torch_names, "_can_tell_kinds", lambda: True)  # It would ask the compiler.
    monkeypatch.setattr(torch, "compile", lambda call, **options: found.append(options) or call)
    return found


WHOLE = [mode for mode in CompileMode if mode is not CompileMode.REGIONAL]
"""Modes of torch."""


@pytest.mark.parametrize("mode", WHOLE)
def test_a_mode_is_handed_to_the_compiler_and_read_back(asked: list[dict[str, Any]], mode: CompileMode) -> None:
    model = torch.nn.Linear(2, 2)
    SEAM.action(Settings(compile=True, compile_mode=mode))(model)
    assert asked == [{} if mode is CompileMode.DEFAULT else {"mode": mode.value}]
    assert model_settings([model], None)["compile_mode"] == mode.value
    assert SEAM.forget is not None
    SEAM.forget(model)
    assert "compile_mode" not in model_settings([model], None)


def test_each_mode_is_built_once_in_a_process_that_returns_to_the_mode(asked: list[dict[str, Any]]) -> None:
    model = torch.nn.Linear(2, 2)
    for mode in (*WHOLE, *WHOLE):
        settings = Settings(compile=True, compile_mode=mode)
        SEAM.action(settings)(model, kind=graph_kind(settings))
    assert len(asked) == len(WHOLE)


def test_a_mode_without_compilation_is_inert() -> None:
    assert Settings(compile_mode=GRAPHS[0]).canonical(device_is_cpu=False) == Settings()


def test_cuda_graphs_are_refused_by_name_where_batches_differ_in_size() -> None:
    facts = script_facts(device="cuda", loader=loader_facts(batches_vary=True), num_repeated_blocks=2)
    space = derive_space(facts, gpu_machine(), search_spec())
    assert space.allowed["compile_mode"] == ("default", "regional", "max-autotune-no-cudagraphs")
    assert "one size" in dict(space.refused)["compile_mode=reduce-overhead"]
    own = Settings(batch_size=64)
    asked = replace(own, compile=True, compile_mode=CompileMode.MAX_AUTOTUNE)
    assert "one size" in why_not_unedited(asked, own, facts)["compile_mode"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"notes": ("varying_inputs",)}, "batches differ in size"),
        ({"notes": ("kept_outputs",)}, "keeps the model's outputs beyond a step"),
        ({"loader": None, "foreign_batches_vary": True}, "batches differ in size"),
    ],
)
def test_cuda_graphs_are_refused_by_what_the_probe_saw_of_the_calls(changes: dict[str, Any], reason: str) -> None:
    space = derive_space(script_facts(device="cuda", **changes), gpu_machine(), search_spec())
    for mode in GRAPHS:
        assert reason in dict(space.refused)[f"compile_mode={mode}"]


def test_modes_are_tried_on_a_gpu_and_on_a_cpu_only_if_asked_for() -> None:
    on_cuda = derive_space(script_facts(device="cuda", num_repeated_blocks=2), gpu_machine(), search_spec())
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


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        return result


class Stage(torch.nn.Module):
    """A block of convolutions; with more channels than before it halves the length, as in a ResNet."""

    def __init__(self, before: int, channels: int) -> None:
        super().__init__()
        stride = 1 if before == channels else 2
        self.first = torch.nn.Conv1d(before, channels, 3, padding=1, stride=stride)
        self.second = torch.nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.relu(self.first(x)))
        return result


class Graphs:
    """Stands in for the compiler's backend, and counts graphs by their sizes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.num_of_any_size = 0
        """Graphs built for inputs of any size."""
        compiler = torch.compile
        torch.compiler.reset()
        monkeypatch.setattr(torch, "compile", lambda function, **options: compiler(function, backend=self._build))

    def _build(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        self.sizes.append(len(inputs))
        self.num_of_any_size += any(isinstance(value, (int, torch.SymInt)) for value in inputs)
        return graph.forward


def blocks(number: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Sequential(*(Block() for _ in range(number))))


of_the_compiler = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*not a leaf Tensor:UserWarning"
)
needs_regions = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < LEAST_TORCH_OF_REGIONS, reason="refused with this torch"
)
REGIONAL = Settings(compile=True, compile_mode=CompileMode.REGIONAL)


@needs_regions
@of_the_compiler
@pytest.mark.parametrize(
    "make",
    [
        lambda: blocks(4),
        lambda: torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0), 4, enable_nested_tensor=False
        ),
    ],
    ids=["own class", "torch's class"],
)
def test_blocks_of_one_class_share_one_graph(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    graphs = Graphs(monkeypatch)
    model, x = make(), torch.randn(3, 2, 4, requires_grad=True)
    names, expected = list(model.state_dict()), model(x)
    SEAM.action(REGIONAL)(model)
    assert torch.allclose(model(x), expected) and not graphs.sizes
    for _ in range(2):
        assert torch.allclose(model(x), expected, atol=1e-6)
    assert len(graphs.sizes) == 1, "a graph for each block"
    assert list(model.state_dict()) == names
    assert model_settings([model], None)["compile_mode"] == "regional"


@needs_regions
@of_the_compiler
def test_blocks_of_several_shapes_have_a_graph_for_each_shape_and_none_for_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ResNet-50's blocks were built for any size, for more than 98 s on an H100."""
    graphs = Graphs(monkeypatch)
    channels = ((4, 4), (4, 4), (4, 8), (8, 8), (8, 8))
    model = torch.nn.Sequential(*(Stage(*each) for each in channels))
    x = torch.randn(3, 4, 16, requires_grad=True)
    expected = model(x)
    SEAM.action(REGIONAL)(model)
    for _ in range(3):
        assert torch.allclose(model(x), expected, atol=1e-6)
    assert (len(graphs.sizes), graphs.num_of_any_size) == (3, 0)


@needs_regions
@of_the_compiler
def test_compiled_blocks_train_are_left_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = Graphs(monkeypatch)
    model, x = blocks(3), torch.randn(3, 4)

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients()
    for number in (1, 1):
        SEAM.action(REGIONAL)(model, kind="regional")
        found = [gradients() for _ in range(3)]
        assert all(torch.allclose(a, b, atol=1e-6) for each in found for a, b in zip(each, expected, strict=True))
        assert len(graphs.sizes) == number
        assert SEAM.forget is not None
        SEAM.forget(model)
        assert "compile_mode" not in model_settings([model], None)
        assert all(module._compiled_call_impl is None for module in model.modules())


def test_a_mode_left_before_the_second_call_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = Graphs(monkeypatch)
    model = blocks(2)
    SEAM.action(REGIONAL)(model)
    assert SEAM.forget is not None
    SEAM.forget(model)
    for _ in range(3):
        model(torch.randn(3, 4))
    assert not graphs.sizes


def test_the_regional_mode_is_refused_with_a_torch_that_builds_each_block_apart() -> None:
    facts = script_facts(device="cuda", num_repeated_blocks=3, torch_version="2.4.1")
    space = derive_space(facts, gpu_machine(), search_spec())
    assert "regional" not in space.allowed["compile_mode"]
    assert "torch 2.4.1" in dict(space.refused)["compile_mode=regional"]


def test_blocks_of_layers_that_are_never_called_have_a_shape_too() -> None:
    lazy = [torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyLinear(4)) for _ in range(2)]
    model = torch.nn.Sequential(*lazy, torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)))
    assert num_shapes(repeated_blocks(model)) == 2


@pytest.mark.parametrize(("number", "is_refused"), [(0, False), (1, False), (4, False), (5, True), (8, True)])
def test_the_regional_mode_is_refused_for_blocks_of_many_shapes(number: int, is_refused: bool) -> None:
    facts = script_facts(device="cuda", num_repeated_blocks=16, num_block_shapes=number)
    space = derive_space(facts, gpu_machine(), search_spec())
    assert ("regional" not in space.allowed["compile_mode"]) is is_refused
    said = dict(space.refused).get("compile_mode=regional", "")
    assert (f"{number} different shapes" in said) is is_refused


def test_the_regional_mode_is_refused_without_blocks_that_repeat() -> None:
    space = derive_space(script_facts(device="cuda"), gpu_machine(), search_spec())
    assert "regional" not in space.allowed["compile_mode"]
    assert "no block that repeats" in dict(space.refused)["compile_mode=regional"]


def test_no_argument_of_the_trainer_compiles_blocks_alone() -> None:
    assert SETTING.frameworks["hf"](REGIONAL, False) is None


@pytest.mark.parametrize("mode", [CompileMode.DEFAULT, CompileMode.REGIONAL])
@pytest.mark.parametrize("vary", [False, True])
def test_the_first_graph_serves_all_sizes_where_batches_differ(
    asked: list[dict[str, Any]], mode: CompileMode, vary: bool
) -> None:
    """Otherwise a second length would cost a second build, in the middle of a window."""
    from autotune.trial.apply.environment_seams import apply_kernels
    from autotune.trial.step.roots import Roots

    roots, model = Roots(), blocks(2)
    apply_kernels(Settings(compile=True, compile_mode=mode), Settings(), roots, sizes_vary=vary)
    for prepare in roots.prepare:
        prepare(model)
    for _ in range(2):
        model(torch.randn(3, 4))
    assert asked and all(options.get("dynamic", False) is vary for options in asked)
