"""`non_blocking`: a copy to the device returns before the end of the copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.setting import Features, Group, OwnLine, Setting, UsualGain
from autotune.settings.stream_prefetch import WHY_NOT

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase
    from autotune.settings.data_type import Settings

UNSAFE = ("written", "reused")
"""Uses of batches by a script that may change the memory of a running copy."""


def _refused(case: ScriptCase) -> str:
    """Refuses scripts that change a batch in page-locked memory, perhaps during the copy."""
    if case.is_cpu or case.is_claimed(Group.TRANSFER) or case.facts.batch_copy not in UNSAFE:
        return ""
    return WHY_NOT[str(case.facts.batch_copy)]


def _features(own: Settings) -> tuple[float, ...]:
    """Copies return at once from page-locked memory only."""
    return 1.0 * own.non_blocking, 1.0 * (own.non_blocking and own.pin_memory)


SETTING = Setting(
    name="non_blocking",
    group=Group.TRANSFER,
    default=False,
    takes_effect="copies from page-locked memory to the device",
    left_alone="on a CPU; beside `stream_prefetch`; the script writes to memory of a copied batch",
    domain=(False, True),
    needs_accelerator=True,
    refused=_refused,
    is_inert=lambda own: own.stream_prefetch,
    usual=UsualGain(value=True, is_small=True),
    features=Features(compute=_features),
    unseen="torch keeps no record of how a copy was started; only copies that autotune starts itself are seen",
    frameworks={
        "hf": lambda own, _: {"accelerator_config": {"non_blocking": True}} if own.non_blocking else {},
        "lightning": lambda own, _: {},  # Lightning copies without waiting by itself.
        "accelerate": lambda own, _: {"dataloader_config": {"non_blocking": own.non_blocking}},
    },
    own_lines=(OwnLine.ON_DEVICE,),
    by_hand="copy with x.to(device, non_blocking=True)",
    by_hand_off="copy with x.to(device)",
)
