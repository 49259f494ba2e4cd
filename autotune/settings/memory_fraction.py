"""`memory_fraction`: share of the device's memory that the caching allocator may reserve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.setting import Effect, Group, OwnLine, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase


def _refused(case: ScriptCase) -> str:
    return "the script sets it by itself" if case.facts.own_memory_fraction and not case.is_cpu else ""


def _is_tried(case: SearchCase, value: Value) -> bool:
    # In force is the cap's share in any case. A smaller share makes no trial faster: the winner's is measured last.
    return value == 1.0 or "memory_fraction" in case.asked or case.is_cpu


def _read() -> float | None:
    import torch

    read_fraction = getattr(torch.cuda, "get_per_process_memory_fraction", None)  # torch 2.8 and later
    return None if read_fraction is None else round(float(read_fraction()), 4)


SETTING = Setting(
    name="memory_fraction",
    group=Group.MEMORY,
    default=1.0,
    takes_effect="CUDA's caching allocator, beside the memory cap",
    left_alone="in trials; the winner's least share is measured after the finals, unless the script sets it",
    domain=(1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
    needs_accelerator=True,
    refused=_refused,
    pointless=_refused,
    is_tried=_is_tried,
    is_sampled=False,
    effect=Effect.NONE,
    is_capped=True,
    read=_read,
    own_lines=(OwnLine.PREPARE,),
    by_hand="call torch.cuda.set_per_process_memory_fraction",
)
