"""Compilation in place reaches the modules of torch's own classes, which torch alone leaves as they are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from autotune.settings import Precision
from autotune.trial.apply.observed import model_settings
from autotune.trial.step.operand_formats import OperandDetector
from autotune.trial.torch import torch_names
from tests.integration.trial import loops
from tests.integration.trial.ground import Ground


class Own(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("make", [Own, lambda: Own().inner], ids=["own class", "torch's class"])
def test_a_root_of_any_class_is_compiled_in_place(make, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    sizes: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        sizes.append(len(graph.graph.nodes))
        return graph.forward

    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function: compiler(function, backend=backend))
    model, x = make(), torch.randn(3, 4)
    expected, names = model(x), list(model.state_dict())
    torch_names.compile_in_place(model)
    assert torch.allclose(model(x), expected)
    # The argument, two layers, what is between them, and the result; later releases look into the layers.
    assert len(sizes) == 1 and sizes[0] >= 5
    assert list(model.state_dict()) == names
    assert model_settings([model], None)["compile"] is True


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("make", [Own, lambda: Own().inner], ids=["own class", "torch's class"])
def test_looking_at_the_operands_does_not_break_the_graph(make, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    num_graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        num_graphs.append(1)
        return graph.forward

    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function: compiler(function, backend=backend))
    model, x = make(), torch.randn(3, 4)
    detector = OperandDetector(is_compiled=lambda: True)
    detector.look(model)
    torch_names.compile_in_place(model)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(x)
    assert num_graphs == [1]
    assert detector.precision is Precision.BF16


class Sizes:
    """A backend of the compiler that notes each build, and the graph that each call runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch.compiler.reset()
        self.is_of_any_size: list[bool] = []
        self.modes: list[str | None] = []
        self.ran: list[int] = []
        compiler = torch.compile

        def compile_by_this(function, *, mode=None, options=None, dynamic=None):
            self.modes.append(mode)
            return compiler(function, backend=self._build, dynamic=dynamic)

        monkeypatch.setattr(torch, "compile", compile_by_this)

    def _build(self, graph: torch.fx.GraphModule, inputs: Sequence[object]) -> object:
        number = len(self.is_of_any_size)
        self.is_of_any_size.append(any(isinstance(value, torch.SymInt) for value in inputs))

        def run(*args: object) -> object:
            self.ran.append(number)
            return graph.forward(*args)

        return run


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_after_the_smaller_last_batch_of_an_epoch_whole_batches_run_the_graph_of_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, model = Sizes(monkeypatch), Own()
    torch_names.compile_in_place(model)
    for size in (8, 8, 3, 8, 3, 8):
        model(x=torch.randn(size, 4)).sum().backward()
    assert sizes.is_of_any_size == [False, False]
    assert sizes.ran == [0, 0, 1, 0, 1, 0]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_an_evaluation_before_the_training_does_not_show_the_usual_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, model = Sizes(monkeypatch), Own()
    monkeypatch.setattr(torch_names, "_can_tell_kinds", lambda: False)
    torch_names.compile_in_place(model, compile_mode="max-autotune")
    with torch.no_grad():
        model(torch.randn(100, 4))
    for size in (8, 8):
        model(torch.randn(size, 4))
    assert sizes.modes == ["max-autotune"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_behind_a_break_of_the_graph_whole_batches_keep_the_graph_of_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not torch_names._can_tell_kinds():
        pytest.skip("this torch cannot tell kinds of graph apart")
    torch.compiler.reset()
    inductor, of_any_size, ran = importlib.import_module("torch._inductor.compile_fx"), [], []

    def compile_fx(graph: torch.fx.GraphModule, inputs: Sequence[object], **_: object) -> object:
        number = len(of_any_size)
        of_any_size.append(any(isinstance(value, torch.SymInt) for value in inputs))
        return lambda *args: ran.append(number) or graph.forward(*args)

    monkeypatch.setattr(inductor, "compile_fx", compile_fx)
    model = Broken()
    torch_names.compile_in_place(model)
    for size in (8, 8, 3, 8):
        ran.clear()
        model(torch.randn(size, 4))
    assert not any(of_any_size[number] for number in ran)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_nested_tensor_shows_no_size() -> None:
    call = torch_names.CallBySize(lambda x: x, lambda: None)
    for layout in (torch.strided, torch.jagged):
        for lengths in ((3, 2), (1, 4)):
            nested = torch.nested.nested_tensor([torch.randn(n, 4) for n in lengths], layout=layout)
            assert call(nested) is nested


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_of_many_smaller_sizes_the_second_gets_a_graph_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, model = Sizes(monkeypatch), Own()
    torch_names.compile_in_place(model)
    for size in (8, 3, 5, 4, 8):
        model(torch.randn(size, 4))
    assert sizes.is_of_any_size == [False, False, True]
    assert sizes.ran == [0, 1, 2, 2, 0]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_sizes_that_also_rise_are_left_to_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, model = Sizes(monkeypatch), Own()
    torch_names.compile_in_place(model)
    for size in (8, 5, 9, 7, 12, 3):
        model(torch.randn(size, 4))
    assert sizes.is_of_any_size == [False, False, True]
    assert sizes.ran == [0, 1, 2, 2, 2, 2]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_batches_known_to_differ_in_size_have_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, model = Sizes(monkeypatch), Own()
    torch_names.compile_in_place(model, is_dynamic=True)
    for size in (8, 3, 5):
        model(torch.randn(size, 4))
    assert sizes.is_of_any_size == [True] and sizes.ran == [0, 0, 0]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_blocks_of_a_shape_share_the_graph_for_smaller_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(monkeypatch)
    blocks = [torch.nn.Linear(4, 4) for _ in range(3)]
    model = torch.nn.Sequential(*blocks)
    torch_names.compile_blocks(model, blocks)
    for size in (8, 8, 3, 8):
        model(torch.randn(size, 4, requires_grad=True) * 1.0)  # As the inputs of the further blocks.
    assert sizes.is_of_any_size == [False, False]
    assert sizes.ran == [0] * 3 + [1] * 3 + [0] * 3


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_no_kernels_are_timed_for_a_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, model = Sizes(monkeypatch), Own()
    monkeypatch.setattr(torch_names, "_can_tell_kinds", lambda: False)
    torch_names.compile_in_place(model, compile_mode="max-autotune")
    for size in (8, 3):
        model(torch.randn(size, 4))
    assert sizes.modes == ["max-autotune", "reduce-overhead"]


@pytest.fixture
def no_stored_graphs() -> Iterator[None]:
    """Keeps the compiler from naming and storing graphs, for which it packs whatever is in the process."""
    inductor = importlib.import_module("torch._inductor.config")
    functorch = importlib.import_module("torch._functorch.config")
    cached = {"enable_autograd_cache": False} if hasattr(functorch, "enable_autograd_cache") else {}
    with inductor.patch(fx_graph_cache=False), functorch.patch(**cached):
        yield
    built = [name for name, module in sys.modules.items() if "torchinductor" in str(getattr(module, "__file__", ""))]
    for name in built:
        del sys.modules[name]  # Elsewhere, modules outside of packages are the script's.


class Broken(torch.nn.Module):
    """A model with a break of the graph, after which the compiler keeps graphs by the model's own functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return torch.relu(self.second(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_kinds_of_graph_share_no_graph_behind_a_break_and_each_is_built_once(no_stored_graphs: None) -> None:
    torch.compiler.reset()
    model, x, num_built = Broken(), torch.randn(3, 4), []
    for kind in ("default", "flash", "default", "flash"):
        before = torch_names.num_compiled_graphs() or 0
        detector = OperandDetector(is_compiled=lambda: True, stays=True)
        with detector.look(model):
            torch_names.compile_in_place(model, kind)
            model(x)
        num_built.append((torch_names.num_compiled_graphs() or 0) - before)
        torch_names.forget_compiled(model)
        assert detector.precision is Precision.FP32
    # A release that cannot tell kinds apart builds anew at each change of the kind.
    assert num_built == ([2, 2, 0, 0] if torch_names._can_tell_kinds() else [2, 2, 2, 2])


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_kind_of_graph_leaves_the_others_the_limit_on_a_functions_graphs(
    monkeypatch: pytest.MonkeyPatch, no_stored_graphs: None
) -> None:
    torch.compiler.reset()
    monkeypatch.setattr(torch_names, "_limits", {})
    monkeypatch.setattr(torch_names, "_kinds", {})
    model, x = Broken(), torch.randn(3, 4)
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    with torch._dynamo.config.patch(**{limit: 2}):
        for kind in range(4):
            before = torch_names.num_compiled_graphs() or 0
            torch_names.compile_in_place(model, kind)
            model(x)
            assert (torch_names.num_compiled_graphs() or 0) == before + 2


def test_a_root_whose_compilation_built_nothing_does_not_count_as_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Own()
    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setattr(torch_names, "num_compiled_graphs", lambda: 0)
    torch_names.compile_in_place(model)
    assert model_settings([model], None)["compile"] is False


def test_a_script_that_compiles_a_function_or_its_model_in_place_is_measured(ground: Ground) -> None:
    """Nothing of that is to be seen at the module that it calls."""
    loop = loops.PLAIN.replace("loader =", 'model.compile(backend="eager")\nloader =')
    path = ground.script(loops.PRELUDE + loop)
    facts = ground.probe(path)
    assert facts.own_compile
    run = ground.trial(path, facts)
    assert run.outcome == "ok", run.verdict


COMPILES_ITS_MODEL = """
from torch._dynamo.utils import counters

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, x):
        return self.inner(x)

loader, compiled, num_steps = DataLoader(Data(800), batch_size=8), torch.compile(Own(), backend="eager"), 0
while True:
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(x), y).backward()
        optimizer.step()
        num_steps += 1
        if num_steps in (2, 12):
            print("graphs", counters["stats"]["unique_graphs"], flush=True)
"""


@pytest.mark.parametrize("is_known", [True, False])
def test_a_script_that_compiles_its_model_builds_one_graph_in_a_trial(ground: Ground, is_known: bool) -> None:
    """Also where the probe has not seen it, as with a knob that compiles. The search ends with the 8th step."""
    path = ground.script(loops.PRELUDE + COMPILES_ITS_MODEL)
    facts = ground.probe(path)
    assert facts.own_compile
    run = ground.trial(path, facts if is_known else replace(facts, own_compile=False))
    assert run.outcome == "ok", run.verdict
    first, later = [line for line in run.output.splitlines() if line.startswith("graphs")][:2]
    assert first == later == "graphs 1"
