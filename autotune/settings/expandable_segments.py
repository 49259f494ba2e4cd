"""`expandable_segments`: segments of CUDA's caching allocator that grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Group, Memory, OwnLine, PeakFactor, Setting

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables of the allocator. torch up to 2.7 knows the second alone; later ones prefer the first and warn of the
second alone; torch 2.9 reads segments from the second only. The same text in both holds for every torch."""
OPTION = "expandable_segments"


def is_on_in(environment: Mapping[str, str]) -> bool:
    """Whether variables of the allocator switch the segments on."""
    return f"{OPTION}:true" in "".join(environment.get(name, "") for name in VARIABLES).lower().replace(" ", "")


def _environment(is_on: Any, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The user's options of the allocator, with this option changed.

    Empty where the option stays off.
    """
    if not is_on and not is_on_in(environment):
        return {}
    return with_options(environment, OPTION, str(bool(is_on)))


def with_options(environment: Mapping[str, str], name: str, value: str) -> dict[str, str]:
    """The variables of the allocator, `a:1,b:[x:2,y:3]`, with one option set."""
    texts = [environment.get(variable, "") for variable in VARIABLES]
    own = {variable: text or next(filter(None, texts), "") for variable, text in zip(VARIABLES, texts, strict=True)}
    return {variable: _with_option(text, name, value) for variable, text in own.items()}


def _with_option(text: str, name: str, value: str) -> str:
    others = [option for option in options_of(text) if option.partition(":")[0].strip() != name]
    return ",".join([*others, f"{name}:{value}"])


def options_of(text: str) -> list[str]:
    """Options between commas; commas in brackets belong to an option's value."""
    options, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            options.append("")
        else:
            options[-1] += letter
    return [option.strip() for option in options if option.strip()]


def _read() -> bool | None:
    """Whether some segment of the allocator can grow; None before the first, and without a record of segments."""
    import torch

    try:
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    except RuntimeError:  # Another allocator, such as cudaMallocAsync, keeps no record.
        return None
    return any(segment.get("is_expandable", False) for segment in segments) if segments else None


def _pointless(case: SearchCase) -> str:
    if case.is_cpu or OPTION in case.asked:
        return ""
    return "it changes what fits rather than how fast it trains; ask with --set"


SETTING = Setting(
    name="expandable_segments",
    group=Group.MEMORY,
    default=False,
    takes_effect="CUDA's caching allocator, by the trial's environment",
    left_alone="on a CPU; unless asked for",
    domain=(False, True),
    needs_accelerator=True,
    pointless=_pointless,
    memory=Memory.EITHER,
    # Memory lost between blocks becomes usable.
    peak_factor=PeakFactor(mean=-0.03, deviation=0.05),
    moves_batch=True,
    environment=_environment,
    is_set_before_start=True,
    not_live="the allocator reads it at the start of the process",
    read=_read,
    own_lines=(OwnLine.PREPARE,),
    by_hand="add expandable_segments:True to PYTORCH_CUDA_ALLOC_CONF before Python starts",
    by_hand_off="leave expandable_segments out of PYTORCH_CUDA_ALLOC_CONF",
)
