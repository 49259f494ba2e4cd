"""`in_order`: batches come in the order of the sampler; without, a slow batch holds up no other."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from autotune.settings.loader_group import loader_argument, of_loader, why_no_loader
from autotune.settings.release import is_before
from autotune.settings.setting import Effect, Features, Group, OwnLine, Setting, chosen

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase
    from autotune.settings.data_type import Settings

LEAST_TORCH = (2, 6)


def _refused(case: ScriptCase) -> str:
    facts, loader = case.facts, case.facts.loader
    if is_before(facts.torch_version, LEAST_TORCH):
        return f"torch {facts.torch_version} has no such argument; torch 2.6 has"
    if loader is not None and not loader.is_shuffled:
        return "no random sampler of torch's draws the samples, and their order may matter to the training"
    return why_no_loader(case)


def _put(value: Any, arguments: dict[str, Any]) -> None:
    from torch.utils.data import DataLoader

    if "in_order" in inspect.signature(DataLoader.__init__).parameters:
        arguments["in_order"] = value


def _is_inert(own: Settings) -> bool:
    """Whether a single worker builds all batches, one after another."""
    return own.num_workers < 2


SETTING = Setting(
    name="in_order",
    group=Group.LOADER,
    default=True,
    takes_effect="the DataLoader that trains, or all that train side by side",
    left_alone="no torch DataLoader trains; no shuffling; fewer than two workers; before torch 2.6",
    domain=(True, False),
    needs_workers=True,
    is_inert=_is_inert,
    own=of_loader("in_order"),
    refused=_refused,
    effect=Effect.LOADER,
    features=Features(loader=chosen("in_order", False)),
    put_in_loader=_put,
    read_of_loader=lambda loader: bool(getattr(loader, "in_order", True)),
    frameworks=loader_argument("in_order", is_rare=True),
    own_lines=(OwnLine.LOADER,),
    by_hand="pass it to the DataLoader",
)
