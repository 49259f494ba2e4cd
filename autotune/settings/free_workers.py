"""`free_workers`: workers run on all cores where a library has pinned the training process to a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.loader_group import why_no_loader
from autotune.settings.setting import Effect, Features, Group, OwnLine, Setting, UsualGain, switched
from autotune.settings.worker_start import START_CPUS, put_in, start_of

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase


def _pointless(case: SearchCase) -> str:
    return "" if "pinned_process" in case.facts.notes else "the workers inherit all cores of the training process"


SETTING = Setting(
    name="free_workers",
    group=Group.LOADER,
    default=False,
    takes_effect="`worker_init_fn` of the DataLoader that trains, or of all that train side by side",
    left_alone="no torch DataLoader trains; the training process has all cores that it started with",
    domain=(False, True),
    needs_workers=True,
    refused=why_no_loader,
    pointless=_pointless,
    is_foreign=lambda case: bool(_pointless(case)),
    usual=UsualGain(value=True),
    effect=Effect.LOADER,
    features=Features(loader=switched("free_workers")),
    put_in_loader=lambda value, arguments: put_in(arguments, cpus=START_CPUS if value else None),
    read_of_loader=lambda loader: (start := start_of(loader)) is not None and start.cpus is not None,
    own_lines=(OwnLine.LOADER,),
    by_hand="call os.sched_setaffinity in the worker_init_fn of the DataLoader",
)
