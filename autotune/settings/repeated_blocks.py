"""Finds the blocks of a model that repeat, such as the layers of a Transformer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

LEAST_BLOCKS = 2
LEAST_PARTS = 2
"""Fewest submodules with parameters in a block, since a single layer keeps no activations inside."""


def repeated_blocks(model: Any) -> list[Any]:
    """The outermost modules of a model that have layers inside and siblings of the same class.

    A list of modules is no block, because a list has no forward pass.
    """
    found: list[Any] = []

    def look(module: Any) -> None:
        children = list(module.children())
        numbers = Counter(type(child) for child in children if _is_called(child) and _num_parts(child) >= LEAST_PARTS)
        for child in children:
            if numbers[type(child)] >= LEAST_BLOCKS:
                found.append(child)
            else:
                look(child)

    look(model)
    return found


def shape_of_block(block: Any) -> Hashable:
    """The class of a block, with the names and shapes of the block's parameters. A lazy parameter has no shape yet.

    Blocks of one shape can share a graph. ResNet-50 has 16 blocks of 8 shapes.
    """
    from torch.nn.parameter import is_lazy

    weights = block.named_parameters()
    return type(block), tuple((name, None if is_lazy(weight) else tuple(weight.shape)) for name, weight in weights)


def num_shapes(blocks: Iterable[Any]) -> int:
    """Number of different shapes among some blocks."""
    return len({shape_of_block(block) for block in blocks})


def _is_called(module: Any) -> bool:
    """Whether a module has a forward pass, from the module's class or from a library such as torch.compile."""
    from torch.nn import Module

    return getattr(getattr(module, "forward", None), "__func__", None) is not Module.forward


def _num_parts(module: Any) -> int:
    return sum(any(True for _ in part.parameters(recurse=False)) for part in module.modules())
