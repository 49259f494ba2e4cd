"""`stream_prefetch`: the next batch is copied to the device during the step on the present batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.settings.loader_group import why_no_loader
from autotune.settings.setting import Features, Group, Memory, OwnLine, Setting, UsualGain, switched

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase

OWN_LINE = "cfg.on_device(loader, device)"
WHY_NOT = {
    "unseen": "how the script copies its batches was not watched",
    "none": "the script copies no tensor of its batches by `to` or `cuda` as the loader made it",
    "used": "the script reads or changes its batches on the host, beside copying them",
    "written": "the script writes to its batches on the host after copying them",
    "reused": "later batches are written to the same page-locked memory, perhaps before a copy ends",
    "kept": "the script keeps batches over many steps, which would fill the device",
    "own_stream": "the script copies its batches on a stream of its own",
    "own_type": "tensors of a batch lie in objects of a class without a method `to`",
}
"""Reasons by `model.facts.BatchCopy`."""
COPY_BYTES_PER_S = 4e9
"""Rate of copies from ordinary memory, at the lower end of PCIe 3 and later."""
LEAST_SHARE = 0.001
"""Share of the script's own step below which copying is left alone: ten times as fast, a step would gain 1 %."""


def _refused(case: ScriptCase) -> str:
    if case.is_cpu or case.is_claimed(Group.TRANSFER):
        return ""
    if "reads_ahead" in case.facts.notes:
        return "a separate thread of the script takes its batches"
    if "several_loaders" in case.facts.notes:
        return "several loaders train side by side, and the batches of one would be copied ahead"
    reason = why_no_loader(case) or WHY_NOT.get(str(case.facts.batch_copy), "")
    return f"{reason} (with a line of its own it can: {OWN_LINE})" if reason else ""


def _pointless(case: SearchCase) -> str:
    facts: Any = case.facts
    if facts.loader is None or "stream_prefetch" in case.asked:
        return ""
    share = facts.loader.batch_bytes / COPY_BYTES_PER_S / max(facts.step_s, 1e-9)
    return "copying a batch takes less than 0.1 % of a step" if share < LEAST_SHARE else ""


SETTING = Setting(
    name="stream_prefetch",
    group=Group.TRANSFER,
    default=False,
    takes_effect="batches of the DataLoader that trains, or `cfg.on_device(loader, device)`",
    left_alone="on a CPU; the script reads, changes or keeps its batches on the host, or has a prefetcher of its own",
    domain=(False, True),
    needs_accelerator=True,
    refused=_refused,
    pointless=_pointless,
    usual=UsualGain(value=True, is_small=True),
    memory=Memory.MORE,
    features=Features(compute=switched("stream_prefetch")),
    unseen="torch keeps no record of how a copy was started; only copies that autotune starts itself are seen",
    own_lines=(OwnLine.ON_DEVICE,),
    by_hand="copy each batch on a second stream during the step before",
)
