"""`pin_memory`: the training loader copies its batches to page-locked memory."""

from __future__ import annotations

from autotune.settings.loader_group import loader_argument, of_loader, why_no_loader
from autotune.settings.setting import Arguments, Effect, Features, Group, OwnLine, Setting, UsualGain, switched

SETTING = Setting(
    name="pin_memory",
    group=Group.LOADER,
    default=False,
    takes_effect="the DataLoader that trains, or all that train side by side",
    left_alone="no torch DataLoader trains; on a CPU",
    domain=(False, True),
    needs_accelerator=True,
    own=of_loader("pin_memory"),
    refused=why_no_loader,
    usual=UsualGain(value=True, is_small=True),
    effect=Effect.LOADER,
    # Copies from page-locked memory are faster, so the compute-only rate has the feature too.
    features=Features(compute=switched("pin_memory"), loader=switched("pin_memory")),
    arguments=Arguments(switches={"pin_memory": "true", "pin_mem": "true"}),
    read_of_loader=lambda loader: bool(loader.pin_memory),
    frameworks=loader_argument("pin_memory"),
    own_lines=(OwnLine.LOADER,),
    by_hand="pass it to the DataLoader",
)
