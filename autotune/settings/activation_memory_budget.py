"""`activation_memory_budget`: share of the activations that a compiled model keeps for its backward pass."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from autotune.settings.activation_checkpointing import why_no_room
from autotune.settings.setting import Features, Group, Memory, OwnLine, Setting

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase
    from autotune.settings.data_type import Settings

CONFIG = "torch._functorch.config"


def _refused(case: ScriptCase) -> str:
    return "the script compiles by itself" if case.facts.own_compile else ""


def _write(value: Any) -> None:
    from torch._functorch import config

    if hasattr(config, "activation_memory_budget"):  # torch 2.4 and later
        config.activation_memory_budget = float(value)


def _read() -> float | None:
    """The value in force; None before torch has loaded its compiler."""
    value = getattr(sys.modules.get(CONFIG), "activation_memory_budget", None)
    return None if value is None else float(value)


def _features(own: Settings) -> tuple[float, ...]:
    return (math.log2(own.activation_memory_budget) if own.compile else 0.0,)


SETTING = Setting(
    name="activation_memory_budget",
    group=Group.KERNELS,
    default=1.0,
    takes_effect="once, before the model is compiled",
    left_alone="without `compile`; own compilation; a micro-batch that cannot grow, unless asked for",
    domain=(1.0, 0.5),
    is_inert=lambda own: not own.compile,
    refused=_refused,
    pointless=why_no_room("activation_memory_budget"),
    memory=Memory.EITHER,
    moves_batch=True,
    changes_graph=True,
    features=Features(compute=_features),
    write=_write,
    read=_read,
    own_lines=(OwnLine.PREPARE,),
    by_hand="set torch._functorch.config.activation_memory_budget before the model is compiled",
)
