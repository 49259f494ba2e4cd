"""The words for settings, rates, outcomes and bottlenecks, the same on every screen. Pure, and plain ASCII."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from autotune.measure.bottleneck import BottleneckKind
from autotune.model.outcome import Outcome
from autotune.model.search_result import LeftOut
from autotune.settings import Settings

SCRIPTS_OWN = "the script's own"

OUTCOME_WORDS: Mapping[Outcome, str] = {
    Outcome.OK: "ok",
    Outcome.RACED_OUT: "too slow",
    Outcome.OVER_CAP: "over the cap",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.INVALID: "invalid",
    Outcome.CRASHED: "crashed",
    Outcome.TIMED_OUT: "timed out",
    Outcome.INTERRUPTED: "interrupted",
}

_BOTTLENECK_WORDS: Mapping[str, str] = {
    BottleneckKind.LOADER: "the data loader",
    BottleneckKind.COMPUTE: "the training step itself; a faster loader would gain a tenth at most",
    BottleneckKind.HOST: "the host: the device waits for Python to give it work",
    BottleneckKind.CPU_CONTENTION: "the processors, which the training step shares with workers or other programs",
}


def clean(text: str) -> str:
    """The text on one line and without control characters, since it may come from the user's script."""
    if text.isprintable():
        return " ".join(text.split())
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def value_text(value: Any) -> str:
    """A value of a setting, as accepted by `--fix`."""
    if value is None or value == "":
        return SCRIPTS_OWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return clean(str(value))


def changes_text(settings: Settings, baseline: Settings) -> str:
    """The differences from the baseline, as `num_workers=4 precision=bf16`; empty without a difference."""
    differences = settings.differences(baseline)
    return " ".join(f"{name.removeprefix('knobs.')}={value_text(ours)}" for name, (ours, _) in differences.items())


def ratio_text(speedup: tuple[float, float, float]) -> str:
    """A ratio with its interval: `2.41x [2.35, 2.47]`."""
    ratio, low, high = speedup
    return f"{ratio:.2f}x [{low:.2f}, {high:.2f}]"


def bottleneck_text(kind: str) -> str:
    """The bottleneck in words to follow `bound by`; empty when unknown."""
    return _BOTTLENECK_WORDS.get(kind, "")


def refused_words(refused: Iterable[tuple[str, str]]) -> list[str]:
    """Settings left out of a search, as `names: reason`, one text per reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in refused:
        by_reason.setdefault(clean(reason), []).append(clean(name))
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def left_out_words(left_out: Iterable[LeftOut]) -> list[str]:
    """Settings left out after failed trials, one text each: `channels_last left out: RuntimeError: ... (trial 3)`.

    A switch in the on state is shown by name alone.
    """
    return [
        f"{' with '.join(_setting_words(*pair) for pair in one.settings)} left out: {one.reason} (trial {one.trial})"
        for one in left_out
    ]


def _setting_words(name: str, value: str) -> str:
    name = name.removeprefix("knobs.")
    return name if value == "true" else f"{name}={value or SCRIPTS_OWN}"
