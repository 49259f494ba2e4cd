"""`unused_blocks`: treatment of memory without a tensor by CUDA's caching allocator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autotune.settings.expandable_segments import VARIABLES, options_of, with_options
from autotune.settings.setting import Group, Memory, OwnLine, Setting

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase

NAME = "unused_blocks"


class UnusedBlocks(StrEnum):
    """Treatment of cached memory."""

    KEEP = "keep"
    """torch's default: blocks are kept and split until an allocation fails, then all are given back."""
    COLLECT = "collect"
    """The oldest blocks are given back from a share of the limit on, before an allocation fails."""
    WHOLE = "whole"
    """Large blocks are never split: a small tensor then keeps no large block in use."""


OPTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        UnusedBlocks.COLLECT: ("garbage_collection_threshold", "0.8"),
        UnusedBlocks.WHOLE: ("max_split_size_mb", "256"),
    }
)
"""Option of the allocator by value. Only blocks above 256 MiB stay whole, since smaller blocks are reused well."""


def blocks_in(environment: Mapping[str, str]) -> UnusedBlocks:
    """The treatment by variables of the allocator."""
    options = [option for name in VARIABLES for option in options_of(environment.get(name, ""))]
    found = (value for value, option in OPTIONS.items() if ":".join(option) in options)
    return UnusedBlocks(next(found, UnusedBlocks.KEEP))


def _environment(value: Any, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The user's options of the allocator with one more; empty for the default."""
    if value not in OPTIONS:
        return {}
    name, amount = OPTIONS[value]
    return with_options(environment, name, amount)


def _pointless(case: SearchCase) -> str:
    if case.is_cpu or NAME in case.asked:
        return ""
    return "it is measured after the finals, where the allocator gives memory back and asks again"


SETTING = Setting(
    name=NAME,
    group=Group.MEMORY,
    default=UnusedBlocks.KEEP,
    takes_effect="CUDA's caching allocator, by the trial's environment",
    left_alone="on a CPU; beside `expandable_segments`; in trials, unless asked for",
    domain=tuple(UnusedBlocks),
    needs_accelerator=True,
    is_inert=lambda own: own.expandable_segments,
    pointless=_pointless,
    memory=Memory.EITHER,
    environment=_environment,
    is_set_before_start=True,
    not_live="the allocator reads it at the start of the process",
    # The allocator reads the variables once, and shows them nowhere.
    read=lambda: blocks_in(os.environ),
    own_lines=(OwnLine.PREPARE,),
    by_hand="add garbage_collection_threshold:0.8 or max_split_size_mb:256 to PYTORCH_CUDA_ALLOC_CONF",
    by_hand_off="leave both options out of PYTORCH_CUDA_ALLOC_CONF",
)
