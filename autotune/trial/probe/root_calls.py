"""Watches inputs and outputs of the model's calls for uses against the rules of a CUDA graph.

A CUDA graph holds one size of each input. Every run of the graph overwrites the outputs of the run before: a script may
not keep outputs beyond a step, nor hand outputs to the next step.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from autotune.trial.probe.saved_activations import memory_of
from autotune.trial.step.steps import Steps
from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import tensors_of

Shapes = tuple[tuple[int, ...], ...]
MOST_LEADING_SIZES = 2
"""Sizes of the first dimension without concern: the batch, and the smaller batch at the end of an epoch."""
MOST_RECURRING = 4
"""Most shapes of a root's inputs that come back."""
LEAST_RETURNS = 3
"""Times that a shape comes first or follows a different shape, before it counts as coming back. In the few
steps of a probe, a script with another image size every tenth step has fewer returns."""
LATE = 2
"""Backward passes before an output counts as kept: a loop's variable holds the outputs of one step."""
MOST_KEPT = 64
"""Most outputs of a root to follow at a time."""


class RootCalls:
    """Follows the tensors of all training calls of the roots.

    Args:
        steps: Counts backward passes.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._shapes: dict[int, Counter[Shapes]] = {}
        """Shapes of all inputs, by root, each with the number of times that it follows a different shape."""
        self._latest: dict[int, Shapes] = {}
        """Shapes of the latest inputs, by root."""
        self._in_turn: dict[int, list[Shapes]] = {}
        """Shapes of all inputs of all roots in the order of the calls, by the number of backward passes before."""
        self._outputs: list[tuple[StorageWeakRef, int, int]] = []
        """Memory and address of outputs, and the number of backward passes at the call."""
        self.keeps_outputs = False
        """Whether the script keeps outputs beyond a step, or hands outputs to the next step."""

    def attach(self, root: torch.nn.Module) -> None:
        """Watches the calls of a root from now on, except a root compiled by torch.jit: torch refuses the hooks.

        The slot of the compiled call is no part of a saved module, and torch.jit reads hooks, but not the slot.
        """
        if isinstance(root, torch.jit.ScriptModule):
            return
        weights = {memory_of(weight)[0] for weight in root.parameters()}
        number = id(root)

        def is_watched() -> bool:
            return torch.is_grad_enabled() and not torch.compiler.is_compiling() and not torch_names.is_traced()

        def before(_: Any, args: Any, kwargs: Any) -> None:
            if is_watched():
                self._called(number, tensors_of([args, kwargs]))

        def after(_: Any, args: Any, kwargs: Any, result: Any) -> None:
            if is_watched():
                known = weights | {memory_of(tensor)[0] for tensor in tensors_of([args, kwargs])}
                self._returned(tensors_of(result), known)

        if not torch_names.HAS_CALL_SLOT:
            root.register_forward_pre_hook(before, with_kwargs=True)
            root.register_forward_hook(after, with_kwargs=True)
            return
        inner = torch_names.outer_call(root)

        def call(*args: Any, **kwargs: Any) -> Any:
            before(None, args, kwargs)
            result = inner(*args, **kwargs)
            after(None, args, kwargs, result)
            return result

        torch_names.set_outer_call(root, torch_names.SlotCall(call))

    @property
    def inputs_vary(self) -> bool:
        """Whether inputs of a root differ in shape, beyond a smaller last batch."""
        return any(_vary(set(shapes)) for shapes in self._shapes.values())

    @property
    def inputs_recur(self) -> bool:
        """Whether the inputs differ in shape, and the same few shapes come back again and again.

        A discriminator of two scales, for instance, gets images of two sizes in every step.
        """
        return self.inputs_vary and all(
            len(returns) <= MOST_RECURRING and (len(returns) == 1 or min(returns.values()) >= LEAST_RETURNS)
            for returns in self._shapes.values()
        )

    @property
    def batches_vary(self) -> bool:
        """Whether the model's work differs from batch to batch: its inputs differ in shape, and not alike per batch.

        A model that gets crops of two sizes of every batch does the same work for every batch.
        """
        in_turn = {tuple(shape for call in calls for shape in call) for calls in self._in_turn.values()}
        return self.inputs_vary and _vary(in_turn)

    def _called(self, root: int, inputs: list[torch.Tensor]) -> None:
        shapes = tuple(tuple(tensor.shape) for tensor in inputs)
        if self._latest.get(root) != shapes:
            self._latest[root] = shapes
            self._shapes.setdefault(root, Counter())[shapes] += 1
        self._in_turn.setdefault(self._steps.num_backwards, []).append(shapes)
        places, now = {memory_of(tensor)[0] for tensor in inputs}, self._steps.num_backwards
        alive = [each for each in self._outputs if not each[0].expired()]  # type: ignore[no-untyped-call]
        self.keeps_outputs |= any(
            now - number >= LATE or (now > number and place in places) for _, place, number in alive
        )
        self._outputs = alive[-MOST_KEPT:]

    def _returned(self, outputs: list[torch.Tensor], known: set[int]) -> None:
        for tensor in outputs:
            place = memory_of(tensor)[0]
            if place and place not in known:
                memory = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
                self._outputs.append((memory, place, self._steps.num_backwards))


def _vary(shapes: set[Shapes]) -> bool:
    inner = {tuple(shape[1:] for shape in each) for each in shapes}
    return len(inner) > 1 or len(shapes) > MOST_LEADING_SIZES
