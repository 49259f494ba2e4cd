"""Chooses the script's arguments to show to the user: each can change a setting in this search."""

from __future__ import annotations

from dataclasses import replace

from autotune.errors import SearchSpaceError
from autotune.model.facts import ArgumentFacts, ScriptFacts
from autotune.model.maps import check_map, target_of
from autotune.settings import text_of
from autotune.space.derive import Machine, derive_space
from autotune.space.search_space import SPLIT, SearchSpace
from autotune.spec import SearchSpec


def useful_arguments(facts: ScriptFacts, machine: Machine, spec: SearchSpec) -> tuple[ArgumentFacts, ...]:
    """Arguments in use by the search, and arguments that a `--map` would bring into the search.

    An argument is left out when the script or the machine refuses the setting with the map as well as without.
    Examples: a switch for fp16 on a CPU, or the batch size of a model with an indivisible batch.
    """
    return tuple(it for it in facts.arguments if it.is_taken or _is_of_use(it, facts, machine, spec))


def _is_of_use(argument: ArgumentFacts, facts: ScriptFacts, machine: Machine, spec: SearchSpec) -> bool:
    """Whether the map of an argument leaves something to search."""
    map_of_it = (argument.name, argument.template)
    try:
        check_map(*map_of_it)
        space = derive_space(facts, machine, replace(spec, maps=(*spec.maps, map_of_it)))
    except SearchSpaceError:
        return False
    setting, value = target_of(*map_of_it)
    return _can_search(space, setting, value)


def _can_search(space: SearchSpace, setting: str, value: str | None) -> bool:
    """Whether a space has several values of a setting, the given value among them."""
    name = SPLIT if setting in ("batch_size", "grad_accum_steps") and SPLIT in space.allowed else setting
    allowed = space.allowed.get(name, ())
    return len(allowed) > 1 and (value is None or value in map(text_of, allowed))
