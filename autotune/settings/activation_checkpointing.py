"""`activation_checkpointing`: backward computes the activations of repeated blocks again."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any

from autotune.settings.repeated_blocks import repeated_blocks
from autotune.settings.setting import Arguments, Features, Group, Memory, OwnLine, PeakFactor, Setting, switched

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase
    from autotune.settings.data_type import Settings

MARK = "_autotune_checkpointed"
"""Attribute of the functions that checkpoint a block."""
OWN_FORWARD = "_autotune_own_forward"
"""Attribute of a checkpointed block: the `forward` set by the script on the block itself, if any."""


def apply(model: Any) -> None:
    """Checkpoints every repeated block of a model in place; weights, names and hooks stay.

    A block gets a bound method. Python binds the copy of a method to the copy of the block, and stores a method by
    name, so a stored model holds nothing of autotune.
    """
    checkpointed: dict[Any, Callable[..., Any]] = {}
    for block in repeated_blocks(model):
        if _is_checkpointed(block):
            continue
        kind: Any = type(block)
        plain = kind.forward
        if "forward" in vars(block):
            vars(block)[OWN_FORWARD] = vars(block)["forward"]
            kind, plain = None, _call_own_forward
        if kind not in checkpointed:  # One function for a class, for one graph of its compiled blocks.
            checkpointed[kind] = _checkpointed(plain)
        block.forward = MethodType(checkpointed[kind], block)


def undo(model: Any) -> None:
    """Ends the checkpoints of a model."""
    for block in model.modules():
        if _is_checkpointed(block):
            del block.forward
            if OWN_FORWARD in vars(block):
                vars(block)["forward"] = vars(block).pop(OWN_FORWARD)


def observe(models: Sequence[Any]) -> bool:
    """Whether some block of the models is checkpointed."""
    return any(_is_checkpointed(block) for model in models for block in model.modules())


def _is_checkpointed(block: Any) -> bool:
    return hasattr(vars(block).get("forward"), MARK)


def _call_own_forward(block: Any, /, *args: Any, **kwargs: Any) -> Any:
    return vars(block)[OWN_FORWARD](*args, **kwargs)


def _checkpointed(plain: Callable[..., Any]) -> Callable[..., Any]:
    import torch
    from torch.utils.checkpoint import checkpoint

    @functools.wraps(plain)
    def forward(block: Any, /, *args: Any, **kwargs: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            return plain(block, *args, **kwargs)

        if not torch.is_grad_enabled():
            return run(*args, **kwargs)
        return checkpoint(run, *args, use_reentrant=False, **kwargs)

    forward.__name__ = "forward"  # Python stores the method by name, and a stored model finds the class's own method.
    setattr(forward, MARK, True)
    return forward


def _refused(case: ScriptCase) -> str:
    facts = case.facts
    if facts.num_repeated_blocks == 0:
        return "the model has no block that repeats"
    if facts.num_batch_norms:
        return f"a second forward pass would move the statistics of {facts.num_batch_norms} BatchNorm layers again"
    if facts.own_compile:
        return "the script compiles by itself"
    return ""


def why_no_room(name: str) -> Callable[[SearchCase], str]:
    """Why a search does not try a setting with less memory at less speed; empty if the micro-batch may grow."""

    def pointless(case: SearchCase) -> str:
        if case.is_batch_free or case.own.grad_accum_steps > 1 or name in case.asked:
            return ""
        return "it only makes room for a larger micro-batch, which is the whole batch already; ask with --set"

    return pointless


def _for_trainer(own: Settings, _: bool) -> dict[str, Any]:
    if not own.activation_checkpointing:
        return {}
    # The measured kind: some releases of the Trainer take the reentrant kind by themselves.
    return {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}


SETTING = Setting(
    name="activation_checkpointing",
    group=Group.KERNELS,
    default=False,
    takes_effect="once, before the first step",
    left_alone="no block repeats; BatchNorm; own compilation; a micro-batch that cannot grow, unless asked for",
    domain=(False, True),
    refused=_refused,
    pointless=why_no_room("activation_checkpointing"),
    memory=Memory.EITHER,
    peak_factor=PeakFactor(mean=math.log(0.6), deviation=0.4),
    moves_batch=True,
    changes_graph=True,
    features=Features(compute=switched("activation_checkpointing")),
    arguments=Arguments(switches={"gradient_checkpointing": "true", "activation_checkpointing": "true"}),
    frameworks={"hf": _for_trainer},
    own_lines=(OwnLine.PREPARE,),
    by_hand="call torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for each repeated block",
    by_hand_off="leave out torch.utils.checkpoint",
)
