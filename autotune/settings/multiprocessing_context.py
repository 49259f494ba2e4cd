"""`multiprocessing_context`: how the workers of the training loader are started."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.loader_group import loader_argument, of_loader, why_no_loader
from autotune.settings.setting import Effect, Features, Group, OwnLine, Setting, UsualGain

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase


class StartMethod(StrEnum):
    """Ways to start a worker."""

    DEFAULT = "default"
    """The system's choice: fork on Linux before Python 3.14, forkserver since."""
    FORK = "fork"
    FORKSERVER = "forkserver"
    """A fork of a process without memory of the script."""
    SPAWN = "spawn"
    """A new interpreter."""


UNSAFE = ("lmdb_before_fork", "hdf5_shared", "file_shared", "cuda_in_fork")
"""Traps of datasets broken by the fork of a worker."""
FRESH = (StartMethod.FORKSERVER, StartMethod.SPAWN)


def _refused_value(case: ScriptCase, method: Any) -> str:
    loader = case.facts.loader
    return loader.spawn_refusal if loader is not None and method in FRESH else ""


def _is_unsafe(facts: Any) -> bool:
    return facts.loader is not None and any(trap.kind in UNSAFE for trap in facts.loader.traps)


def _pointless(case: SearchCase) -> str:
    if _is_unsafe(case.facts) or _inherited(case) or "multiprocessing_context" in case.asked:
        return ""
    return "workers that are forked from this script are safe, and start fastest; ask with --set"


def _inherited(case: SearchCase) -> str:
    """The start method that the workers inherit; empty for forked workers, and when the user asks for a method."""
    loader = case.facts.loader
    is_asked = "multiprocessing_context" in case.asked
    return "" if loader is None or is_asked else str(loader.inherited_start)


def _dropped(case: SearchCase) -> Iterable[tuple[str, str]]:
    """Values left out of a search, each with the reason."""
    inherited = _inherited(case)
    is_open = not inherited and "multiprocessing_context" not in case.asked
    if is_open and case.own.multiprocessing_context != StartMethod.FORK:
        yield StartMethod.FORK.value, "a fork may break the dataset"
    for method in FRESH:
        reason = _refused_value(case, method)
        if inherited:
            reason = f"workers start by {inherited} already, and forked ones start faster"
        if reason:
            yield method.value, reason


SETTING = Setting(
    name="multiprocessing_context",
    group=Group.LOADER,
    default=StartMethod.DEFAULT,
    takes_effect="the DataLoader that trains, or all that train side by side",
    left_alone="forked workers that are safe, unless asked for; the dataset cannot be pickled; an unguarded script",
    domain=tuple(member.value for member in StartMethod),
    needs_workers=True,
    own=of_loader("multiprocessing_context"),
    refused=why_no_loader,
    refused_value=_refused_value,
    pointless=_pointless,
    is_foreign=lambda case: bool(_pointless(case)),
    dropped=_dropped,
    usual=UsualGain(value=StartMethod.FORKSERVER.value, is_small=True),
    effect=Effect.LOADER,
    features=Features(loader=lambda own: (1.0 * (own.multiprocessing_context in FRESH),)),
    put_in_loader=lambda value, arguments: arguments.update(
        multiprocessing_context=None if value == StartMethod.DEFAULT else str(value)
    ),
    read_of_loader=lambda loader: (
        StartMethod.DEFAULT.value
        if loader.multiprocessing_context is None
        else str(loader.multiprocessing_context.get_start_method())
    ),
    frameworks=loader_argument("multiprocessing_context", is_rare=True),
    own_lines=(OwnLine.LOADER,),
    by_hand="pass it to the DataLoader",
)
