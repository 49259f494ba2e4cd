"""`prefetch_factor`: batches ahead per worker of the training loader."""

from __future__ import annotations

import math

from autotune.settings.loader_group import loader_argument, of_loader, why_no_loader
from autotune.settings.setting import Arguments, Effect, Features, Group, Memory, OwnLine, Setting, UsualGain

DEFAULT_PREFETCH_FACTOR = 2
"""Default of torch's DataLoader with workers."""

SETTING = Setting(
    name="prefetch_factor",
    group=Group.LOADER,
    default=DEFAULT_PREFETCH_FACTOR,
    takes_effect="the DataLoader that trains, or all that train side by side",
    left_alone="no torch DataLoader trains; without workers",
    domain=(1, 2, 4, 8),
    bounds=(1, 1024),
    needs_workers=True,
    own=of_loader("prefetch_factor"),
    refused=why_no_loader,
    usual=UsualGain(value=4, is_small=True),
    effect=Effect.LOADER,
    memory=Memory.MORE,
    is_memory_of_host=True,
    features=Features(loader=lambda own: (0.5 * math.log2(own.prefetch_factor),)),
    arguments=Arguments(numbers=("prefetch_factor", "dataloader_prefetch_factor")),
    read_of_loader=lambda loader: int(loader.prefetch_factor or DEFAULT_PREFETCH_FACTOR),
    frameworks=loader_argument("prefetch_factor"),
    own_lines=(OwnLine.LOADER,),
    by_hand="pass it to the DataLoader",
)
