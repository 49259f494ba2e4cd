"""The number format is read from the operands of a model's products, whatever its layers are made of."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from autotune.settings import Precision
from autotune.trial.step.autocast import AutocastRegion
from autotune.trial.step.operand_formats import OperandDetector
from autotune.trial.step.roots import Roots

SIZE = 8
SEQUENCE = torch.randn(2, 4, SIZE)


class Weights(torch.nn.Module):
    """Has parameters and no layer; a product is made of them by the function that it is given."""

    def __init__(self, product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight, self._product = torch.nn.Parameter(torch.randn(SIZE, SIZE)), product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._product(x, self.weight)


class Attends(torch.nn.Module):
    """Attends by torch's class alone, as the first layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(SIZE, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.attention(x, x, x)[0]
        return result


class First(torch.nn.Module):
    """Gives on the first of what its layer returns."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)[0]
        return result


class Translates(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Transformer(SIZE, 2, 1, 1, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(x, x)
        return result


class FrozenEncoder(torch.nn.Module):
    """A frozen encoder in evaluation mode, which torch runs by one operation, and a head that trains."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(SIZE, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 1).eval().requires_grad_(False)
        self.head = torch.nn.Linear(SIZE, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.encoder(x))
        return result


def encoder_layer() -> torch.nn.Module:
    return torch.nn.TransformerEncoderLayer(SIZE, 2, 16, batch_first=True)


def attend(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(x, keys, x)


def has_bf16_lstm() -> bool:
    """Whether oneDNN has an LSTM in bf16 for this processor; without one, torch raises."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(SIZE, 4, batch_first=True)(torch.zeros(2, 3, SIZE))
    except RuntimeError:
        return False
    return True


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "a linear layer": lambda: torch.nn.Linear(SIZE, 2),
    "an attention": Attends,
    "an encoder layer": encoder_layer,
    "an encoder": lambda: torch.nn.TransformerEncoder(encoder_layer(), 2),
    "a transformer": Translates,
    "a frozen encoder in evaluation mode": FrozenEncoder,
    "a fused attention": lambda: Weights(lambda x, w: attend(x[:, None], (x * w[0])[:, None])),
    "functional linear": lambda: Weights(functional.linear),
    "matmul": lambda: Weights(torch.matmul),
    "the operator": lambda: Weights(lambda x, w: x @ w),
    "einsum": lambda: Weights(lambda x, w: torch.einsum("bti,io->bto", x, w)),
    "a convolution of parameters": lambda: Weights(lambda x, w: functional.conv1d(x.mT, w[..., None])),
    "an RNN": lambda: First(torch.nn.RNN(SIZE, 4, batch_first=True)),
    "an LSTM": lambda: First(torch.nn.LSTM(SIZE, 4, batch_first=True)),
    "a GRU": lambda: First(torch.nn.GRU(SIZE, 4, batch_first=True)),
    "a cell": lambda: torch.nn.Sequential(torch.nn.Flatten(0, 1), torch.nn.GRUCell(SIZE, 4)),
}


def called(model: torch.nn.Module, precision: Precision, detector: OperandDetector, *, times: int = 1) -> None:
    """Trains a model as a trial does in that format, with a detector."""
    roots = Roots()
    if precision is not Precision.FP32:
        AutocastRegion("cpu", precision).install(roots)
    roots.around_first.append(detector.look)
    roots.install()
    try:
        for _ in range(times):
            model(SEQUENCE).float().sum().backward()
    finally:
        roots.stop()


@pytest.fixture(autouse=True)
def _own_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
@pytest.mark.parametrize("kind", MODELS)
def test_the_format_is_seen_of(kind: str, precision: Precision) -> None:
    if kind == "an LSTM" and precision is Precision.BF16 and not has_bf16_lstm():
        pytest.skip("this processor has no LSTM in bf16")
    detector = OperandDetector()
    called(MODELS[kind](), precision, detector)
    assert detector.precision is precision


def test_a_model_without_products_shows_no_format() -> None:
    detector = OperandDetector()
    called(Weights(lambda x, w: x * w[0]), Precision.BF16, detector)
    assert detector.precision is None


def test_a_small_part_in_a_format_of_its_own_is_not_taken_for_the_model() -> None:
    class Routed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.expert = torch.nn.Linear(SIZE, 2), torch.nn.Linear(SIZE, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                share = self.router(x).softmax(-1)
            result: torch.Tensor = self.expert(x) * share[..., :1]
            return result

    detector = OperandDetector()
    called(Routed(), Precision.BF16, detector)
    assert detector.precision is Precision.BF16


def test_of_a_frozen_part_the_format_does_not_count_beside_what_trains() -> None:
    class Adapted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = torch.nn.Linear(SIZE, 64).bfloat16().requires_grad_(False)
            self.head = torch.nn.Linear(64, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.frozen(x.bfloat16()).float())
            return result

    detector = OperandDetector()
    called(Adapted(), Precision.FP32, detector)
    assert detector.precision is Precision.FP32


def test_autocast_that_the_model_switches_off_is_not_in_force() -> None:
    class Refuses(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                return super().forward(x)

    detector = OperandDetector()
    called(Refuses(SIZE, 2), Precision.BF16, detector)
    assert detector.precision is Precision.FP32


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["a linear layer", "an attention", "an encoder layer", "a transformer"])
def test_a_compiled_model_is_seen_without_keeping_the_compiler_out(kind: str) -> None:
    torch.compiler.reset()
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    detector = OperandDetector(is_compiled=lambda: True)
    called(torch.compile(MODELS[kind](), backend=backend), Precision.BF16, detector, times=2)  # type: ignore[arg-type]
    assert detector.precision is Precision.BF16
    assert graphs


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_compiled_model_is_copied_and_stored_without_what_looks_at_it() -> None:
    torch.compiler.reset()
    detector, model, file = OperandDetector(is_compiled=lambda: True), MODELS["a linear layer"]().eval(), io.BytesIO()
    with detector.look(model):
        expected = torch.compile(model, backend="eager")(SEQUENCE)
    assert any(part._forward_hooks for part in model.modules()), "a hook within a graph stays"
    torch.save(copy.deepcopy(model), file)
    assert b"autotune" not in file.getvalue()
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    format_seen = detector.dtype
    assert detector._hook is not None
    detector._hook.dtype = None
    assert torch.allclose(loaded(SEQUENCE), expected, atol=1e-6)
    assert format_seen is torch.float32 and detector.dtype is None


def counted_by_torch(model: torch.nn.Module, *inputs: torch.Tensor) -> int:
    """Operations of forward and backward, by torch's own counter of the whole run."""
    with FlopCounterMode(display=False) as counter:
        model(*inputs).sum().backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)), torch.randn(16, 32)),
        (torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 3)), torch.randn(2, 3, 12, 12)),
        (torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 2)), torch.randn(4, 5, 8)),
        (torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), torch.randn(2, 8, 32)),
    ],
    ids=["linear", "convolution", "no bias", "attention"],
)
def test_the_operations_of_a_call_and_its_backward_are_those_of_torchs_counter(model, inputs) -> None:
    detector = OperandDetector()
    with detector.look(model):
        model(inputs)
    assert detector.num_flops == pytest.approx(counted_by_torch(model, inputs), rel=0.06)


def test_the_operations_of_a_frozen_layer_are_counted_once() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 8))
    model[0].requires_grad_(False)
    detector = OperandDetector()
    with detector.look(model):
        model(torch.randn(16, 32))
    assert detector.num_flops == 2 * 16 * 32 * 64 + 2 * 2 * 16 * 64 * 8


class Attends(torch.nn.Module):
    """A module that names torch's attention in its own method."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize(
    ("root", "attends"),
    [
        (torch.nn.Sequential(torch.nn.Linear(4, 4), Attends()), True),
        (torch.nn.TransformerEncoderLayer(4, 2), True),
        (torch.nn.Linear(4, 4), False),
    ],
    ids=["its own", "torch's", "none"],
)
def test_attention_of_a_compiled_model_is_seen_by_its_name(root: torch.nn.Module, attends: bool) -> None:
    detector = OperandDetector(lambda: True)
    with detector.look(root):
        pass
    assert detector.has_fused_attention is attends


def test_the_share_of_recurrent_layers_is_that_of_their_multiplications() -> None:
    def share_of(model: torch.nn.Module) -> float:
        detector = OperandDetector()
        with detector.look(model):
            model(SEQUENCE)
        return detector.recurrent_share

    lstm = First(torch.nn.LSTM(SIZE, SIZE, batch_first=True))
    assert share_of(lstm) > 0.9
    assert share_of(torch.nn.Sequential(lstm, torch.nn.Linear(SIZE, 100 * SIZE))) < 0.5
    assert share_of(torch.nn.Linear(SIZE, SIZE)) == 0.0
    assert OperandDetector().recurrent_share == 0.0


def chosen(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A product after an operator that takes functions."""
    branched: torch.Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return branched @ weight


def attended_in_blocks(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="new in torch 2.5")
    queries = (x.detach() @ weight.detach())[:, None]  # torch has no backward pass of this attention on a CPU.
    attended: torch.Tensor = flex.flex_attention(queries, queries, queries)[:, 0]
    return attended @ weight


@pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "supports_higher_order_operators"),
    reason="this torch refuses operators that take functions under every dispatch mode",
)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("product", [chosen, attended_in_blocks], ids=["cond", "flex_attention"])
def test_operators_that_take_functions_run_in_the_first_call(product: Any) -> None:
    detector = OperandDetector()
    called(Weights(product), Precision.FP32, detector)
    assert detector.precision is Precision.FP32


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_part_compiled_as_one_graph_in_the_first_call_is_compiled() -> None:
    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        compiled: Any = torch.compile(torch.matmul, backend="eager", fullgraph=True)
        result: torch.Tensor = compiled(x, weight)
        return result

    detector = OperandDetector()
    called(Weights(product), Precision.FP32, detector)
    assert detector.precision is Precision.FP32


class Heads(torch.nn.Module):
    """Linear layers in bf16 and attention of many heads in fp32, as torch's `math` kernel computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.last(self.first(x))
        heads = hidden.float().view(-1, 32, 16, 4).flatten(0, 1)
        with torch.autocast("cpu", enabled=False):
            scores = torch.bmm(heads, heads.transpose(1, 2))
            return torch.baddbmm(heads, scores, heads)


def test_many_small_products_do_not_outvote_the_layers() -> None:
    """`sdpa_backend=math` was refused under bf16: 96 matrices in fp32 counted ten times what they multiply."""
    detector = OperandDetector()
    model = Heads()
    with detector.look(model):
        model(torch.randn(64, 32, 64))
    assert detector.precision is Precision.BF16


def test_products_of_no_matrices_are_nothing() -> None:
    """An expert without a token, an image without a box."""

    class Empty(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.bmm(x, x)

    detector, model = OperandDetector(), Empty()
    with detector.look(model):
        assert model(torch.randn(0, 4, 4)).shape == (0, 4, 4)


def test_a_process_for_many_settings_has_one_hook_on_a_layer_and_none_in_between() -> None:
    model, numbers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)), []
    for precision in (Precision.BF16, Precision.FP32):
        detector = OperandDetector(lambda: True, stays=True)
        with detector.look(model), torch.autocast("cpu", torch.bfloat16, enabled=precision is Precision.BF16):
            model(torch.randn(2, 4))
        assert detector.precision is precision
        numbers.append([list(layer._forward_hooks) for layer in model])
        model[0].requires_grad_(False)  # The script may freeze the layer in between.
        detector.close()
        assert not any(layer._forward_hooks for layer in model)
    assert numbers[0] == numbers[1] and len(numbers[0][0]) == 1
