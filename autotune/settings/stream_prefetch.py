"""`stream_prefetch`: the next batch is copied on a side stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.setting import Features, Group, Memory, OwnLine, Setting, switched

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase

OWN_LINE = "cfg.on_device(loader, device)"


def _refused(case: ScriptCase) -> str:
    if case.is_cpu or case.is_claimed(Group.TRANSFER):
        return ""
    return f"a copy on a side stream needs a line of the script's own: {OWN_LINE}"


SETTING = Setting(
    name="stream_prefetch",
    group=Group.TRANSFER,
    default=False,
    takes_effect=f"`{OWN_LINE}`",
    left_alone="on a CPU; the script has no such line",
    domain=(False, True),
    needs_accelerator=True,
    refused=_refused,
    memory=Memory.MORE,
    features=Features(compute=switched("stream_prefetch")),
    unseen="torch keeps no record of how a copy was started; only copies that autotune starts itself are seen",
    own_lines=(OwnLine.ON_DEVICE,),
    by_hand="copy in a loop of the script's own",
)
