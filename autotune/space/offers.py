"""Chooses the script's arguments to show to the user: each can change a setting in this search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.errors import SearchSpaceError
from autotune.model.facts import ArgumentFacts, ScriptFacts
from autotune.model.maps import check_map, target_of
from autotune.settings import text_of
from autotune.space.derive import Machine, derive_space
from autotune.space.search_space import SPLIT, SearchSpace
from autotune.spec import SearchSpec

TOGETHER = ("batch_size", "grad_accum_steps")
"""Settings whose product is held fixed."""


def useful_arguments(facts: ScriptFacts, machine: Machine, spec: SearchSpec) -> tuple[ArgumentFacts, ...]:
    """Arguments in use by the search, and arguments that a `--map` would bring into the search.

    An argument is left out when the script or the machine refuses the setting with the map as well as without, such as
    a switch for fp16 on a CPU. Batch size and accumulation may be of use together only: the product is held fixed.
    """

    def is_of_use(it: ArgumentFacts) -> bool:
        beside = [one for one in facts.arguments if one.name in TOGETHER and it.name in TOGETHER]
        return any(_is_of_use(it, maps, facts, machine, spec) for maps in ([it], beside))

    return tuple(it for it in facts.arguments if it.is_taken or is_of_use(it))


def _is_of_use(
    argument: ArgumentFacts, mapped: Sequence[ArgumentFacts], facts: ScriptFacts, machine: Machine, spec: SearchSpec
) -> bool:
    """Whether an argument's setting can be searched with these arguments mapped."""
    maps = tuple((it.name, it.template) for it in mapped)
    try:
        for name, template in maps:
            check_map(name, template)
        space = derive_space(facts, machine, replace(spec, maps=(*spec.maps, *maps)))
    except SearchSpaceError:
        return False
    setting, value = target_of(argument.name, argument.template)
    return bool(maps) and _can_search(space, setting, value)


def _can_search(space: SearchSpace, setting: str, value: str | None) -> bool:
    """Whether a space has several values of a setting, the given value among them."""
    name = SPLIT if setting in TOGETHER and SPLIT in space.allowed else setting
    allowed = space.allowed.get(name, ())
    return len(allowed) > 1 and (value is None or value in map(text_of, allowed))
