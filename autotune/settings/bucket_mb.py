"""`bucket_mb`: size of the buckets of gradients that the ranks exchange during the backward pass."""

from __future__ import annotations

import math

from autotune.settings.ddp_group import NOT_LIVE, ddp_argument, of_ddp, read_by, why_no_ddp
from autotune.settings.setting import Arguments, Features, Group, Memory, OwnLine, Setting

DEFAULT_BUCKET_MB = 25
"""Default of DistributedDataParallel, in MiB."""


SETTING = Setting(
    name="bucket_mb",
    group=Group.RANKS,
    default=DEFAULT_BUCKET_MB,
    takes_effect="DistributedDataParallel, as the script wraps its model",
    left_alone="no rank trains by DistributedDataParallel",
    domain=(DEFAULT_BUCKET_MB, 10, 50, 100, 200),
    bounds=(1, 1 << 16),
    most_searched=1 << 16,
    is_foreign=lambda case: bool(why_no_ddp(case)),
    own=of_ddp("bucket_mb"),
    refused=why_no_ddp,
    memory=Memory.EITHER,
    features=Features(compute=lambda own: (0.5 * math.log2(own.bucket_mb / DEFAULT_BUCKET_MB),)),
    arguments=Arguments(numbers=("bucket_cap_mb", "ddp_bucket_cap_mb")),
    not_live=NOT_LIVE,
    read_of_module=read_by(lambda ddp: max(1, round(ddp.bucket_bytes_cap / (1 << 20)))),
    frameworks=ddp_argument("bucket_mb", of_trainer="ddp_bucket_cap_mb"),
    own_lines=(OwnLine.RANKS,),
    by_hand="pass bucket_cap_mb to DistributedDataParallel",
)
