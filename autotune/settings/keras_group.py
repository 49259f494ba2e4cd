"""The common parts of settings of Keras scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase


def of_keras(name: str) -> Callable[[Any], Value | None]:
    """The script's own value of a setting, by the facts; None without Keras."""

    def own(facts: Any) -> Value | None:
        value: Value | None = None if facts.keras is None else getattr(facts.keras, name)
        return value

    return own


def refused_without(kind: str, words: str) -> Callable[[ScriptCase], str]:
    """The refusal of a setting for one kind of data.

    Args:
        kind: Kind of data by `model.keras_facts.DataKind`.
        words: The kind in the reason, for people.
    """

    def refused(case: ScriptCase) -> str:
        keras = case.facts.keras
        return "" if keras is None or keras.data == kind else f"fit receives no {words}"

    return refused
