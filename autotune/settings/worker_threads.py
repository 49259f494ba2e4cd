"""`worker_threads`: threads of OpenCV and other libraries within each worker of the training loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.loader_group import why_no_loader
from autotune.settings.setting import Effect, Features, Group, OwnLine, Setting
from autotune.settings.worker_start import LIMITS, put_in, start_of

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase

SELDOM_USED = ("threadpoolctl",)
"""Modules whose import says nothing of the loader's work."""


def _pointless(case: SearchCase) -> str:
    used = set(case.facts.modules) & (LIMITS.keys() - set(SELDOM_USED))
    if used or "worker_threads" in case.asked:
        return ""
    return "no library with threads of its own was seen, such as OpenCV; torch has one thread in a worker anyway"


SETTING = Setting(
    name="worker_threads",
    group=Group.LOADER,
    default=0,
    takes_effect="`worker_init_fn` of the DataLoader that trains, or of all that train side by side",
    left_alone="no torch DataLoader trains; neither OpenCV, numexpr, pyarrow nor numba was imported",
    domain=(0, 1, 2),
    bounds=(0, 1024),
    most_searched=1024,
    needs_workers=True,
    refused=why_no_loader,
    pointless=_pointless,
    is_foreign=lambda case: bool(_pointless(case)),
    effect=Effect.LOADER,
    features=Features(loader=lambda own: (1.0 * (own.worker_threads == 1), 1.0 * (own.worker_threads > 1))),
    put_in_loader=lambda value, arguments: put_in(arguments, num_threads=value),
    read_of_loader=lambda loader: start.num_threads if (start := start_of(loader)) is not None else 0,
    own_lines=(OwnLine.LOADER,),
    by_hand="call cv2.setNumThreads in the worker_init_fn of the DataLoader",
)
