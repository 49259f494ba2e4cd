"""Settings passed to the script through its own arguments. Pure.

A map is a pair of name and template. `batch_size` and `--batch-size={}` pass any value. `precision.bf16` and `--amp
--dtype=bfloat16` pass one value; each further value of the setting needs a map of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autotune.errors import SearchSpaceError
from autotune.model.facts import ScriptFacts
from autotune.settings import GROUP_OF_FIELD, INERT_WITHOUT_WORKERS, SETTINGS, Settings, text_of

PLACE = "{}"
Maps = Iterable[tuple[str, str]]
UNSEEN_FIELDS = tuple(setting.name for setting in SETTINGS if setting.unseen)
"""Settings without any view from outside: only their use is seen, and a mapped trial could not be trusted."""


def check_map(name: str, template: str) -> None:
    """Refuses a map that could pass nothing to the script.

    Raises:
        SearchSpaceError: When the template has no place for the value and the name has no value, or the setting cannot
            be observed.
    """
    setting, value = target_of(name, template)
    if value is None and PLACE not in template:
        raise SearchSpaceError(
            f"{template!r} has no {PLACE} where the value goes.", f"Put it there, or write {name}.VALUE={template}."
        )
    if setting in UNSEEN_FIELDS:
        raise SearchSpaceError(
            f"{setting} cannot be mapped: nothing shows whether the script applies it.",
            f"Leave out this --map; with --set {setting}=... autotune applies the setting itself if that is sound.",
        )


def target_of(name: str, template: str) -> tuple[str, str | None]:
    """The mapped setting or knob, and the value of a map for one value only."""
    if PLACE in template or "." not in name:
        return name, None
    setting, _, value = name.partition(".")
    return setting, value


def mapped_settings(maps: Maps) -> frozenset[str]:
    """Settings and knobs with a map."""
    return frozenset(target_of(name, template)[0] for name, template in maps)


def mapped_values(setting: str, maps: Maps) -> frozenset[str] | None:
    """Values of a setting that can be passed to the script, as text; None for any value."""
    targets = [target_of(name, template) for name, template in maps]
    values = [value for target, value in targets if target == setting]
    return None if None in values else frozenset(value for value in values if value is not None)


def all_maps(asked: Maps, facts: ScriptFacts | None) -> tuple[tuple[str, str], ...]:
    """The maps given by the user, then the working maps found by the probe for the remaining settings."""
    asked = tuple(asked)
    taken = mapped_settings(asked)
    found = facts.arguments if facts is not None else ()
    return (
        *asked,
        *((it.name, it.template) for it in found if it.is_taken and target_of(it.name, it.template)[0] not in taken),
    )


def mapped_arguments(settings: Settings, script_settings: Settings, maps: Maps) -> tuple[str, ...]:
    """Arguments that pass the mapped settings to the script; none for the script's own values.

    Raises:
        SearchSpaceError: When a map has no place for the value.
    """
    plain, own, knobs = settings.to_dict(), script_settings.to_dict(), dict(settings.knobs)
    arguments: list[str] = []
    for name, template in maps:
        check_map(name, template)
        setting, value = target_of(name, template)
        is_field = setting in GROUP_OF_FIELD
        asked = text_of(plain[setting]) if is_field else knobs.get(setting, "")
        is_own = asked == text_of(own[setting]) if is_field else not asked
        if setting in INERT_WITHOUT_WORKERS and settings.num_workers == 0:
            continue  # torch refuses both without workers
        if not is_own and value in (None, asked):
            arguments += [word.replace(PLACE, asked) for word in template.split()]
    return tuple(arguments)


def template_for(setting: str, value: str, maps: Mapping[str, str]) -> str:
    """The words that pass this value to the script; empty without a map."""
    for name, template in maps.items():
        if target_of(name, template) in ((setting, None), (setting, value)):
            return template.replace(PLACE, value)
    return ""
