"""`channels_last`: four-dimensional weights and inputs in NHWC order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.precision import is_half
from autotune.settings.setting import Arguments, Features, Group, OwnLine, Setting, UsualGain

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase
    from autotune.settings.data_type import Settings


def _pointless(case: SearchCase) -> str:
    has_none = case.facts.num_convolutions == 0 and not case.is_claimed(Group.KERNELS)
    return "the model has no two-dimensional convolution" if has_none else ""


def _features(own: Settings) -> tuple[float, ...]:
    """Kernels in half precision gain more from the order than kernels in fp32."""
    return 1.0 * own.channels_last, 1.0 * (own.channels_last and is_half(own))


SETTING = Setting(
    name="channels_last",
    group=Group.KERNELS,
    default=False,
    takes_effect="once, before the first step",
    left_alone="no two-dimensional convolution",
    domain=(False, True),
    own=lambda facts: bool(facts.own_channels_last),
    pointless=_pointless,
    usual=UsualGain(value=True),
    cpu_turn=2,
    changes_graph=True,
    not_live_in_ddp="the ranks lay out their buckets like the weights, as they wrap the model",
    features=Features(compute=_features),
    arguments=Arguments(switches={"channels_last": "true"}),
    own_lines=(OwnLine.PREPARE,),
    by_hand="call model.to(memory_format=torch.channels_last)",
    by_hand_off="leave out model.to(memory_format=torch.channels_last)",
)
