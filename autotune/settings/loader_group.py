"""The common parts of settings that are arguments of the DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Group, Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase
    from autotune.settings.data_type import Settings


def why_no_loader(case: ScriptCase) -> str:
    """Why the loader's settings are the script's affair; empty when trials can change them."""
    if case.facts.loader is None:
        return "no torch DataLoader was seen to train"
    if "several_loaders" in case.facts.notes and not case.facts.loader.beside:
        return (
            "several loaders train side by side, differ in settings or kind, and which one to tune is not ours to "
            "guess; if the script has an argument for their workers, it can be searched, as in --set jobs=2,4 --map "
            "jobs=--jobs={}"
        )
    if "replays_batches" in case.facts.notes:
        return (
            "itertools.cycle keeps the first epoch's batches and never asks the loader for more, so that trials, which "
            "see that epoch, would overrate what loading costs (`while True: yield from loader` reads it anew)"
        )
    return ""


def num_loaders(facts: Any) -> int:
    """Number of loaders that a trial gives the same settings; 1 without a loader, or if the script gives them."""
    is_ours = facts.loader is not None and Group.LOADER not in facts.claims
    return 1 + (len(facts.loader.beside) if is_ours else 0)


def of_loader(name: str) -> Callable[[Any], Value | None]:
    """The own value of a setting from the facts of the training loader; None without a loader."""

    def own(facts: Any) -> Value | None:
        value: Value | None = None if facts.loader is None else getattr(facts.loader, name)
        return value

    return own


def put_in_loader(changes: Mapping[str, Any], arguments: dict[str, Any]) -> None:
    """Puts settings of the loader, by name, into the arguments of a DataLoader."""
    from autotune.settings.registry import BY_NAME

    for name, value in changes.items():
        put = BY_NAME[name].put_in_loader
        if put is None:
            arguments[name] = value
        else:
            put(value, arguments)


def loader_argument(
    name: str, *, is_rare: bool = False
) -> Mapping[str, Callable[[Settings, bool], Mapping[str, Any] | None]]:
    """Arguments of frameworks for a setting of the DataLoader.

    Args:
        name: The setting.
        is_rare: Whether torch's own value is left out, since older releases lack the argument.
    """

    def of(settings: Settings) -> dict[str, Any]:
        is_inert = settings.num_workers == 0 and name in settings.inert
        value = getattr(settings, name)
        is_left_out = is_inert or (is_rare and value == getattr(type(settings)(), name))
        return {} if is_left_out else {name: str(value) if isinstance(value, StrEnum) else value}

    def for_trainer(settings: Settings, _: bool) -> Mapping[str, Any]:
        return {f"dataloader_{each}": value for each, value in of(settings).items()}

    def for_loader(settings: Settings, _: bool) -> Mapping[str, Any]:
        return {"loader": of(settings)}

    return {"hf": for_trainer, "lightning": for_loader, "accelerate": for_loader}
