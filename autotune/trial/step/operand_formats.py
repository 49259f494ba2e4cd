"""Reads the number format of a model from the operands of matrix products."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from autotune.settings import Precision
from autotune.trial.step.autocast import DTYPES
from autotune.trial.step.replicas import num_replicas
from autotune.trial.torch import torch_names

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "_cudnn_rnn", "mkldnn_rnn_layer", "miopen_rnn")
"""torch's operations of recurrent layers."""
PRODUCTS = frozenset(
    {
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "linear", "_trilinear", "_grouped_mm"),
        *("convolution", "_convolution", "cudnn_convolution", "cudnn_convolution_transpose", "mkldnn_convolution"),
        *RECURRENT,
        *("_transformer_encoder_layer_fwd", "_native_multi_head_attention"),
    }
)
"""torch's operations that multiply matrices, in the lower format under autocast."""
BATCHED = ("bmm", "baddbmm")
"""torch's products of as many matrices as the first size says."""
ATTENTION = ("attention", "dot_product", "_attn_")
"""Parts of the names of attention operations, those of attention libraries included."""
LAYERS = (
    torch.nn.Linear,
    torch.nn.Conv1d,
    torch.nn.Conv2d,
    torch.nn.Conv3d,
    torch.nn.ConvTranspose1d,
    torch.nn.ConvTranspose2d,
    torch.nn.ConvTranspose3d,
    torch.nn.RNNBase,
    torch.nn.MultiheadAttention,
)
"""Layers with outputs in the format of their products."""


class _Reading:
    """Products of one call of a root."""

    def __init__(self) -> None:
        self.trained, self.frozen = Counter[torch.dtype](), Counter[torch.dtype]()
        """Multiplications by the format of their operands."""
        self.num_recurrent = 0
        """Multiplications in recurrent layers."""
        self.num_flops = 0.0


class OperandDetector:
    """Reads the number format of a model in the first call of each root.

    Each product is weighted by its multiplications, so a small router in fp32 does not outvote a model in bf16.
    Products of frozen layers count only in a model without trained layers, since a frozen layer may have any format.

    Args:
        is_compiled: True when torch's compiler runs the model. The detector then watches one layer within the graph,
            because watching every operation would keep the compiler out.
        stays: Whether the process measures further settings with the same models. Every detector of a compiled model
            then puts the same hook on the layer until `close`. With other hooks on a layer the compiler would build a
            graph anew.
    """

    def __init__(self, is_compiled: Callable[[], bool] = lambda: False, *, stays: bool = False) -> None:
        self._is_compiled = is_compiled
        self._stays = stays
        self._readings: dict[int, _Reading] = {}
        """Readings of calls, by root."""
        self._hook: _LayerHook | None = None
        """The hook on the watched layer."""
        self._reads_layer = False
        """Whether the format is the layer's."""
        self.has_fused_attention = False
        """Whether a fused kernel of scaled_dot_product_attention was seen; in a compiled model, the function's name."""

    def look(self, root: torch.nn.Module) -> AbstractContextManager[object]:
        """The context for the first call of a root."""
        if torch.compiler.is_compiling():
            return nullcontext()
        # Replicas compute in separate threads, out of sight of a context in this thread.
        if torch_names.DISPATCH_MODE is not None and not self._is_compiled() and num_replicas(root) == 1:
            reading = self._readings[id(root)] = _Reading()  # A later look takes the place of an earlier one.
            return _every_product(partial(self._note, reading))
        self.has_fused_attention |= any(map(_calls_attention, {type(part) for part in root.modules()}))
        self._look_at_a_layer(root)
        self._reads_layer = True
        return nullcontext()

    def close(self) -> None:
        """Takes the hook off the layer, for a process that measures further settings."""
        if self._stays and self._hook is not None:
            self._hook.detach()

    @property
    def num_flops(self) -> float:
        """Floating point operations of the watched calls and of their backward passes, where torch has a formula."""
        return sum(reading.num_flops for reading in self._readings.values())

    @property
    def recurrent_share(self) -> float:
        """Share of the watched multiplications in torch's recurrent layers; 0 before the first product."""
        readings = self._readings.values()
        total = sum(sum(reading.trained.values()) + sum(reading.frozen.values()) for reading in readings)
        return sum(reading.num_recurrent for reading in readings) / total if total else 0.0

    @property
    def dtype(self) -> torch.dtype | None:
        """The format of most multiplications; None before the first product."""
        trained, frozen = Counter[torch.dtype](), Counter[torch.dtype]()
        if self._reads_layer and self._hook is not None and self._hook.dtype is not None:
            trained[self._hook.dtype] += 1
        for reading in self._readings.values():
            trained += reading.trained
            frozen += reading.frozen
        most = (trained or frozen).most_common(1)
        return most[0][0] if most else None

    @property
    def precision(self) -> Precision | None:
        """The precision in force; None before the first product."""
        if self.dtype is None:
            return None
        for precision, dtype in DTYPES.items():
            if dtype is self.dtype:
                return precision
        is_tf32 = torch_names.is_cuda_on() and torch_names.allows_tf32()
        return Precision.TF32 if is_tf32 else Precision.FP32

    def _note(
        self,
        reading: _Reading,
        operation: str,
        operands: list[torch.Tensor],
        num_multiplications: int,
        num_flops: int,
    ) -> None:
        # Backward computes as many operations again for each operand with a gradient: for the weight, for the input.
        factors = operands[:2] if "conv" in operation else operands[-2:]  # A bias comes last, or first.
        reading.num_flops += num_flops * (1 + sum(factor.requires_grad for factor in factors))
        self.has_fused_attention |= "_scaled_dot_product" in operation
        counts = reading.trained if any(operand.requires_grad for operand in operands) else reading.frozen
        counts[operands[0].dtype] += num_multiplications
        if operation in RECURRENT:
            reading.num_recurrent += num_multiplications

    def _look_at_a_layer(self, root: torch.nn.Module) -> None:
        """Watches a layer of the first root with one, by the hook of an earlier detector where such a hook stays."""
        if self._hook is not None:
            return
        layers = list(_layers_called_by(root))
        known = (layer for layer in layers if self._stays and layer in _staying)
        training = (layer for layer in layers if any(weight.requires_grad for weight in layer.parameters()))
        layer = next(known, None) or next(training, layers[0] if layers else None)
        if layer is None:
            return
        self._hook = _staying.get(layer) if self._stays else None
        if self._hook is None:
            self._hook = _LayerHook(stays=self._stays)
            if self._stays:
                _staying[layer] = self._hook
        self._hook.attach(layer)


class _LayerHook:
    """A hook on a layer; copies of the layer, and the layer's stored form, have a hook that does nothing.

    A hook is stored with its layer, and a stored model is to need no autotune.
    """

    def __init__(self, *, stays: bool) -> None:
        self.dtype: torch.dtype | None = None
        """Format of the layer's output in training; None before the first call."""
        self._stays = stays
        self._handle: Any = None

    def attach(self, layer: torch.nn.Module) -> None:
        """Puts the hook on a layer, in the place of the time before."""
        self.dtype = None
        if self._handle is None:
            self._handle = layer.register_forward_hook(self)
        else:
            torch_names.put_hook_back(layer, self._handle, self)

    def detach(self) -> None:
        """Takes the hook off the layer."""
        self._handle.remove()

    def __call__(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """Looks at an output."""
        if isinstance(output, tuple) and output:
            output = output[0]  # a recurrent layer also returns a state, an attention also returns weights
        if torch.is_grad_enabled() and isinstance(output, torch.Tensor):
            # Nothing but a plain assignment: torch 2.4 breaks the graph where a hook makes an object.
            self.dtype = output.dtype
            if not self._stays and not torch.compiler.is_compiling():
                # A hook within a graph stays: removing the hook there would break the graph and silently leave a root
                # of torch's own classes uncompiled; removing it later would build the graph anew. A note is free.
                self._handle.remove()

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")  # Takes any three arguments, and gives back None.


_staying: weakref.WeakKeyDictionary[torch.nn.Module, _LayerHook] = weakref.WeakKeyDictionary()
"""Hooks for all measurements of the process, by layer."""


def _calls_attention(kind: type[torch.nn.Module]) -> bool:
    """Whether a class of modules calls scaled_dot_product_attention, by the names in its own methods.

    Within a compiled graph no call is seen.
    """
    if issubclass(kind, torch.nn.MultiheadAttention):
        return True
    methods = (getattr(method, "__code__", None) for method in vars(kind).values())
    return any(code is not None and "scaled_dot_product_attention" in code.co_names for code in methods)


def _layers_called_by(root: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Layers with a product in each call, without the projections of a MultiheadAttention, which are never called."""
    inner = {
        id(part)
        for attention in root.modules()
        if isinstance(attention, torch.nn.MultiheadAttention)
        for part in attention.children()
    }
    return (part for part in root.modules() if isinstance(part, LAYERS) and id(part) not in inner)


def _every_product(note: Callable[[str, list[torch.Tensor], int, int], None]) -> AbstractContextManager[object]:
    """A context that tells `note` name, floating operands, multiplications and operations of every product here.

    torch calls the context below autocast and autograd, with the operands of the kernels themselves.
    """

    class Products(torch_names.DISPATCH_MODE):  # type: ignore[misc]
        supports_higher_order_operators = True
        """torch refuses operators that take functions otherwise, such as flex_attention. Their insides stay unseen."""

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            """True: torch's compiler works here too, as `fullgraph=True` demands."""
            return True

        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = operation(*args, **(kwargs or {}))
            if not hasattr(operation, "overloadpacket"):
                return result  # An operator that takes functions.
            name = operation.overloadpacket.__name__
            if name in PRODUCTS or any(word in name for word in ATTENTION):
                operands = [value for value in _tensors(args) if value.is_floating_point()]
                if operands:
                    num_flops = torch_names.num_flops(operation, args, kwargs or {}, result)
                    note(name, operands, _num_multiplications(name, operands, result), num_flops)
            return result

    mode: AbstractContextManager[object] = Products()
    return mode


def _tensors(args: Any) -> Iterator[torch.Tensor]:
    for value in args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _num_multiplications(operation: str, operands: list[torch.Tensor], result: Any) -> int:
    """The multiplications of a matrix product, (mk * kn * mn) ** 0.5 of its sizes; an estimate for convolutions."""
    is_batched = operation in BATCHED
    factors = operands[-2:] if is_batched else operands
    sizes = sorted((factor.numel() for factor in factors), reverse=True)[:2]
    made = next(_tensors(result if isinstance(result, (list, tuple)) else (result,)), None)
    product = 1 + math.isqrt(math.prod(sizes) * (made.numel() if made is not None else 1))
    # The number of matrices is in all three sizes, and counts once.
    return 1 + int(product / math.sqrt(max(1, len(factors[0])))) if is_batched else product
