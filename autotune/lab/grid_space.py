"""Builds a complete grid over a part of a search space, with reasons for the missing settings. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.errors import SearchSpaceError
from autotune.lab.grid import Grid
from autotune.protocol.codec import from_plain, to_plain
from autotune.settings import DOMAINS, GROUP_OF_FIELD, Settings, Value
from autotune.space.search_space import KNOB_PREFIX, SCRIPTS_OWN, SPLIT, SearchSpace
from autotune.spec import SearchSpec

BATCHES = frozenset({"batch_size", "grad_accum_steps"})
MAX_CELLS = 5000
"""Most cells of a grid: more cells take days to measure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Enumeration:
    """The cells of a grid."""

    cells: tuple[Settings, ...]
    """Canonical settings, each once: first the script's own, then the rest in the order of the parameters' values."""
    dropped: tuple[tuple[Settings, str], ...]
    """Illegal combinations, each with the reason."""


def grid_space(space: SearchSpace, spec: SearchSpec) -> SearchSpace:
    """The space of a grid: all values of parameters named by the user, and the script's own value of the others."""
    named = {_parameter(name, space) for name, _ in (*spec.ranges, *spec.fixed)}
    if spec.effective_batch not in ("fixed", "free"):
        named.add("batch_size")
    own = space.params(space.script_settings)
    allowed = {name: values if name in named else (own[name],) for name, values in space.allowed.items()}
    return replace(space, allowed=allowed)


def recorded_space(grid: Grid) -> SearchSpace:
    """The space of a recording; the legal settings are exactly the cells.

    Raises:
        ValueError: This version cannot read the space.
    """
    values = dict(grid.header.space)
    if "natural" in values:  # the name of the field in files
        values["script_settings"] = values.pop("natural")
    asked = {name for name, _ in grid.header.asked}
    values.setdefault("has_asked_batches", not asked.isdisjoint(BATCHES))
    return from_plain(SearchSpace, values)


def space_to_record(space: SearchSpace) -> dict[str, Any]:
    """The space in the form of a recording, for `recorded_space`."""
    values: dict[str, Any] = to_plain(space)
    values["natural"] = values.pop("script_settings")
    return values


def space_over(
    script_settings: Settings, values: Mapping[str, Sequence[Value]], *, device_is_cpu: bool = False
) -> SearchSpace:
    """The space of a callable: the given values of some parameters, and the baseline's value of all others.

    Args:
        script_settings: The baseline; a search always tries the baseline's values.
        values: Values by name: of fields of Settings, or of your own knobs, as text. With values for `batch_size` and
            a known micro-batch of the baseline, samples per step may change.
        device_is_cpu: True when settings for accelerators have no effect.

    Raises:
        SearchSpaceError: A value is impossible.
    """
    base = script_settings.to_dict()
    own: dict[str, Value] = {name: base[name] for name in DOMAINS}
    if script_settings.batch_size is not None:
        own.update(batch_size=script_settings.batch_size, grad_accum_steps=script_settings.grad_accum_steps)
    knobs = [name for name in values if name not in GROUP_OF_FIELD]
    own.update({KNOB_PREFIX + name: dict(script_settings.knobs).get(name, SCRIPTS_OWN) for name in knobs})
    asked = {KNOB_PREFIX + name if name in knobs else name: tuple(some) for name, some in values.items()}
    unknown = next((name for name in asked if name not in own), None)
    if unknown is not None:
        raise SearchSpaceError(f"{unknown} has values, but the natural settings have none.", "Give the natural one.")
    for name, some in asked.items():
        for value in some:
            if not name.startswith(KNOB_PREFIX):
                Settings.from_dict({name: value})
    domains = {name: tuple(dict.fromkeys((value, *asked.get(name, ())))) for name, value in own.items()}
    return SearchSpace(
        script_settings=script_settings,
        domains=domains,
        allowed=domains,
        refused=(),
        device_is_cpu=device_is_cpu,
        has_asked_batches=not BATCHES.isdisjoint(values),
    )


def _parameter(name: str, space: SearchSpace) -> str:
    if name in BATCHES and SPLIT in space.allowed:
        return SPLIT
    return name if name in GROUP_OF_FIELD else KNOB_PREFIX + name


def enumerate_cells(space: SearchSpace) -> Enumeration:
    """All legal settings of a space in canonical form, without duplicates, the baseline first.

    Raises:
        SearchSpaceError: The space has more than MAX_CELLS combinations.
    """
    if space.num_settings > MAX_CELLS:
        sizes = " x ".join(f"{len(space.allowed[name])} {name}" for name in space.searched)
        raise SearchSpaceError(
            f"The grid has {space.num_settings:,} combinations ({sizes}), which is more than {MAX_CELLS:,}.",
            "Narrow it with --set and --fix.",
        )
    cells = {space.script_settings.canonical(device_is_cpu=space.device_is_cpu): None}
    dropped: dict[Settings, str] = {}
    for values in itertools.product(*map(_in_order, space.allowed.values())):
        settings = space.settings(dict(zip(space.allowed, values, strict=True)))
        reason = space.why_not(settings)
        if reason is None:
            cells[settings] = None
        else:
            dropped[settings] = reason
    return Enumeration(cells=tuple(cells), dropped=tuple(dropped.items()))


def _in_order(values: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(sorted(values, key=lambda value: value if isinstance(value, (int, float)) else math.inf))
