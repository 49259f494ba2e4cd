"""`persistent_workers`: the workers of the training loader live on between epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.loader_group import loader_argument, of_loader, why_no_loader
from autotune.settings.setting import Arguments, Effect, Features, Group, OwnLine, Setting, UsualGain, switched

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase


def _pointless(case: SearchCase) -> str:
    is_rebuilt = case.facts.loader is not None and case.facts.loader.is_rebuilt
    return "the script builds a new loader for every epoch, whose workers end with it" if is_rebuilt else ""


SETTING = Setting(
    name="persistent_workers",
    group=Group.LOADER,
    default=False,
    takes_effect="the DataLoader that trains, or all that train side by side",
    left_alone="no torch DataLoader trains; without workers; a new loader for every epoch",
    domain=(False, True),
    needs_workers=True,
    own=of_loader("persistent_workers"),
    refused=why_no_loader,
    pointless=_pointless,
    usual=UsualGain(value=True, is_small=True),
    effect=Effect.LOADER,
    features=Features(loader=switched("persistent_workers")),
    arguments=Arguments(switches={"persistent_workers": "true"}),
    read_of_loader=lambda loader: bool(loader.persistent_workers),
    frameworks=loader_argument("persistent_workers"),
    own_lines=(OwnLine.LOADER,),
    by_hand="pass it to the DataLoader",
)
