"""`num_workers`: worker processes of the training loader."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune.settings.loader_group import loader_argument, num_loaders, of_loader, why_no_loader
from autotune.settings.setting import Arguments, Effect, Features, Group, Memory, OwnLine, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase

WORKERS_PER_CPU = 2
"""Workers beyond this many per usable core only take turns."""


def _why_no_workers(case: ScriptCase) -> str:
    """Why autotune cannot give workers to a loader without workers; empty when possible."""
    loader = case.facts.loader
    if loader is None or loader.num_workers > 0:
        return ""
    if loader.is_iterable and not loader.splits_among_workers:
        return f"every worker would read all of {loader.dataset}, which neither asks get_worker_info nor has shards"
    if "unguarded_spawn" in case.facts.notes:
        return 'the script has no `if __name__ == "__main__"`, and every worker, started by spawn, would run it again'
    return ""


def _shared_handle(case: SearchCase) -> str:
    """Why several forked workers may read wrong data; empty for other datasets, and when the user asks for workers."""
    traps = case.facts.loader.traps if case.facts.loader is not None else ()
    if "num_workers" in case.asked:
        return ""
    return next((f"{trap.problem}; ask with --set" for trap in traps if trap.may_falsify_samples), "")


def _pointless(case: SearchCase) -> str:
    loader = case.facts.loader
    if loader is not None and loader.num_workers == 0 and (reason := _shared_handle(case)):
        return reason
    return "" if "num_workers" in case.mapped else _why_no_workers(case)


def _is_tried(case: SearchCase, value: Value) -> bool:
    return int(value) <= max(1, round(case.cpus * WORKERS_PER_CPU / num_loaders(case.facts)))


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    """Drops numbers of workers that find no batch, and a second worker that may read wrong data."""
    loader = case.facts.loader
    if loader is not None and loader.num_workers == 1 and (reason := _shared_handle(case)):
        yield from ((value, reason) for value in SETTING.domain if int(value) > 1)
    if loader is not None and loader.num_shards is not None:
        for value in SETTING.domain:
            if int(value) > loader.num_shards:
                yield value, f"the stream has only {loader.num_shards} shards"
        return
    if loader is None or loader.num_batches is None or loader.is_read_before_training:
        return
    for value in SETTING.domain:
        if int(value) > max(1, loader.num_batches):
            yield value, f"an epoch has only {loader.num_batches} {'batch' if loader.num_batches == 1 else 'batches'}"


SETTING = Setting(
    name="num_workers",
    group=Group.LOADER,
    default=0,
    takes_effect="the DataLoader that trains, or all that train side by side",
    left_alone="no torch DataLoader trains; several with different settings; an `IterableDataset` without workers that "
    "does not split itself; a dataset read by one process through an open file, unless asked for",
    domain=(0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64),
    bounds=(0, 1024),
    most_searched=1024,
    own=of_loader("num_workers"),
    refused=lambda case: why_no_loader(case) or _why_no_workers(case),
    pointless=_pointless,
    dropped=_dropped,
    is_tried=_is_tried,
    effect=Effect.LOADER,
    memory=Memory.MORE,
    is_memory_of_host=True,
    helps_beside_load=lambda value, own: value < own,
    features=Features(loader=lambda own: (math.log2(1 + own.num_workers), 1.0 * (own.num_workers == 0))),
    arguments=Arguments(
        numbers=("num_workers", "workers", "n_workers", "nworkers", "loader_workers", "dataloader_num_workers"),
        of_trainer="dataloader_num_workers",
    ),
    read_of_loader=lambda loader: int(loader.num_workers),
    frameworks=loader_argument("num_workers"),
    own_lines=(OwnLine.LOADER,),
    by_hand="pass it to the DataLoader",
)
