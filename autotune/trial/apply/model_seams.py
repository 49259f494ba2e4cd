"""Seams of settings that change a model, by setting. A new setting of this kind needs an entry here.

`Config.prepare` applies the seams to the model given by the script; trials apply the seams to every root module.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from autotune.settings import Settings, Value, activation_checkpointing
from autotune.settings.compile_mode import CompileMode
from autotune.settings.repeated_blocks import repeated_blocks
from autotune.trial.step import memory_format
from autotune.trial.torch import torch_names


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSeam:
    """How a setting changes a model, and how the change is read back."""

    apply: Callable[..., None]
    """Switches the setting on in a model."""
    observe: Callable[[Sequence[torch.nn.Module]], Value | None]
    """The value in force in the training models; None = unknown."""
    undo: Callable[[torch.nn.Module], None] | None = None
    """Switches the setting off in a model of a script with the setting on; None = impossible."""
    input_on: Callable[[Any], Any] | None = None
    """Conversion of every argument of a model with the setting on."""
    input_off: Callable[[Any], Any] | None = None
    """Conversion of every argument of a model with the setting switched off."""
    details: Mapping[str, Callable[[Sequence[torch.nn.Module]], Value | None]] = field(default_factory=dict)
    """Settings of the way in which `apply` works, given to `apply` by name; each with the reading of its value."""
    is_for_one_root: bool = False
    """True when the seam takes the first root module only, and ends the search for root modules."""
    has_graph: bool = False
    """True when `apply` also takes `kind`, the values of all settings that change the graph, and `is_dynamic`, whether
    batches differ in size."""
    forget: Callable[[torch.nn.Module], None] | None = None
    """Notes between two measurements of a process that the setting is off again, for a seam without `undo`."""

    def action(self, settings: Settings) -> Callable[..., None]:
        """Switches the setting on in a model, in the way that the settings ask for."""
        return partial(self.apply, **{name: getattr(settings, name) for name in self.details})


def _undo_channels_last(model: torch.nn.Module) -> None:
    if memory_format.has_some(model):
        memory_format.convert_weights(model, torch.contiguous_format)


def _compile(
    model: torch.nn.Module,
    kind: Hashable = None,
    compile_mode: CompileMode = CompileMode.DEFAULT,
    *,
    is_dynamic: bool | None = None,
) -> None:
    """Compiles a model as a whole, or only its repeated blocks."""
    if compile_mode is CompileMode.REGIONAL:
        torch_names.compile_blocks(model, repeated_blocks(model), kind, is_dynamic=is_dynamic)
    else:
        torch_names.compile_in_place(model, kind, compile_mode, is_dynamic=is_dynamic)


def _observe_compile(modules: Sequence[torch.nn.Module]) -> bool | None:
    """Whether some module is to run compiled, and torch's compiler has built a graph."""
    if not modules or not torch_names.HAS_CALL_SLOT:
        return None
    is_asked = any(torch_names.is_compiled(module) for module in modules)
    return is_asked and torch_names.num_compiled_graphs() != 0


def _observe_mode(modules: Sequence[torch.nn.Module]) -> str | None:
    """The mode of the compiled modules; None without a module compiled by us."""
    modes = {torch_names.compile_mode(module) for module in modules} - {None}
    return modes.pop() if len(modes) == 1 else None


MODEL_SEAMS: Mapping[str, ModelSeam] = MappingProxyType(
    {
        "channels_last": ModelSeam(
            apply=memory_format.convert_weights,
            observe=memory_format.is_in_force,
            undo=_undo_channels_last,
            input_on=memory_format.convert_input,
            input_off=partial(memory_format.convert_input, memory_format=torch.contiguous_format),
        ),
        "activation_checkpointing": ModelSeam(
            apply=activation_checkpointing.apply,
            observe=activation_checkpointing.observe,
            undo=activation_checkpointing.undo,
        ),
        "compile": ModelSeam(
            apply=_compile,
            observe=_observe_compile,
            is_for_one_root=True,
            details={"compile_mode": _observe_mode},
            has_graph=True,
            forget=torch_names.forget_compiled,
        ),
    }
)
"""In order of application: compilation comes last."""
