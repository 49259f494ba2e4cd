"""`non_blocking`: copies to the device do not wait for their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.setting import Features, Group, OwnLine, Setting, UsualGain

if TYPE_CHECKING:
    from autotune.settings.data_type import Settings


def _features(own: Settings) -> tuple[float, ...]:
    """Copies return at once from page-locked memory only."""
    return 1.0 * own.non_blocking, 1.0 * (own.non_blocking and own.pin_memory)


SETTING = Setting(
    name="non_blocking",
    group=Group.TRANSFER,
    default=False,
    takes_effect="copies from page-locked memory to the device",
    left_alone="on a CPU; beside `stream_prefetch`",
    domain=(False, True),
    needs_accelerator=True,
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
