"""`gradient_as_bucket_view`: gradients lie in the buckets that the ranks exchange, without a copy."""

from __future__ import annotations

from autotune.settings.ddp_group import NOT_LIVE, ddp_argument, of_ddp, read_by, why_no_ddp
from autotune.settings.setting import Arguments, Features, Group, Memory, OwnLine, Setting, UsualGain, switched

SETTING = Setting(
    name="gradient_as_bucket_view",
    group=Group.RANKS,
    default=False,
    takes_effect="DistributedDataParallel, as the script wraps its model",
    left_alone="no rank trains by DistributedDataParallel",
    domain=(False, True),
    is_foreign=lambda case: bool(why_no_ddp(case)),
    own=of_ddp("gradient_as_bucket_view"),
    refused=why_no_ddp,
    usual=UsualGain(value=True, is_small=True),
    memory=Memory.EITHER,
    features=Features(compute=switched("gradient_as_bucket_view")),
    arguments=Arguments(switches={"gradient_as_bucket_view": "true"}),
    not_live=NOT_LIVE,
    read_of_module=read_by(lambda ddp: bool(ddp.gradient_as_bucket_view)),
    frameworks=ddp_argument("gradient_as_bucket_view"),
    own_lines=(OwnLine.RANKS,),
    by_hand="pass it to DistributedDataParallel",
)
