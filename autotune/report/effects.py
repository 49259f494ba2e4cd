"""The effect of each setting on the rate, from pairs of trials with a single difference. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotune.model.outcome import Outcome
from autotune.model.trial_records import TrialRecord
from autotune.report.words import clean, ratio_text, value_text
from autotune.settings import GROUP_OF_FIELD, INERT_WITHOUT_WORKERS, Settings

BATCH = "batch_size"
"""Shown with the matching accumulation steps: `32 x 2`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """The effect of one setting's value against the baseline's value, under otherwise equal settings."""

    setting: str
    start: str
    """The value compared against."""
    end: str
    ratio: float
    """Geometric mean of the rate with `end` over the rate with `start`."""
    low: float
    high: float
    """The smallest and the largest ratio among the pairs: single trials, no interval."""
    num_pairs: int


def effect_text(effect: Effect) -> str:
    """The ratio and the number of pairs: `1.24x (1 pair)`, `0.76x [0.69, 0.95] (3 pairs)`; the range is no interval."""
    if effect.num_pairs == 1:
        return f"{effect.ratio:.2f}x (1 pair)"
    return f"{ratio_text((effect.ratio, effect.low, effect.high))} ({effect.num_pairs} pairs)"


@lru_cache(maxsize=16384)
def values_of(settings: Settings) -> Mapping[str, str]:
    """Every setting as text; accumulation as a part of the batch, knobs under `knobs.NAME`."""
    values = {name: value_text(getattr(settings, name)) for name in GROUP_OF_FIELD if name != "grad_accum_steps"}
    if settings.grad_accum_steps > 1:
        values[BATCH] += f" x {settings.grad_accum_steps}"
    values.update({f"knobs.{clean(name)}": value_text(value) for name, value in settings.knobs})
    return values


def varied(trials: Sequence[TrialRecord]) -> dict[str, tuple[str, ...]]:
    """Settings with several tried values, and the values: numbers by size, then texts by name."""
    values_by_name: dict[str, dict[str, None]] = {}
    for trial in trials:
        for name, value in values_of(trial.settings).items():
            values_by_name.setdefault(name, {}).setdefault(value)
    return {name: tuple(sorted(values, key=_order)) for name, values in values_by_name.items() if len(values) > 1}


def effects(trials: Sequence[TrialRecord], baseline: Settings) -> tuple[Effect, ...]:
    """Effects of changing one setting from the baseline's value, the largest first, among complete trials.

    A setting without effect in the absence of workers is ignored if one trial of a pair has none.
    """
    own = values_of(baseline)
    complete = [
        trial for trial in trials if trial.result.outcome is Outcome.OK and trial.result.measurement is not None
    ]
    rows = [values_of(trial.settings) for trial in complete]
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    varying = [name for name, values in columns.items() if len(set(values)) > 1 or {*values} - {own.get(name)}]
    if not varying:
        return ()
    measured = [
        _Measured(values, trial.result.measurement.samples_per_second, trial.settings.num_workers == 0)
        for trial, values in zip(complete, zip(*(columns[name] for name in varying), strict=True), strict=True)
        if trial.result.measurement is not None
    ]
    logs: dict[tuple[str, str], list[float]] = {}
    for index, name in enumerate(varying):
        for one, other, value in _pairs(measured, varying, index, own.get(name)):
            logs.setdefault((name, value), []).append(math.log(other.rate / one.rate))
    found = [_effect(name, own.get(name, ""), end, ratios) for (name, end), ratios in logs.items()]
    return tuple(sorted(found, key=lambda effect: -effect.ratio))


@dataclass(frozen=True, slots=True)
class _Measured:
    """A trial measured in full."""

    values: tuple[str | None, ...]
    """Values of the varying settings, in their order; None for an unknown knob."""
    rate: float
    is_bare: bool
    """True when the trial has no workers."""


def _pairs(
    measured: Sequence[_Measured], names: Sequence[str], index: int, own: str | None
) -> Iterator[tuple[_Measured, _Measured, str]]:
    """Pairs with a difference in the setting at `index` only, and the second's value; the first has the baseline's.

    Trials are looked up by their other settings, because comparing thousands pairwise takes minutes.
    """
    for ignores_inert in (False, True):
        ignored = {names[index], *(INERT_WITHOUT_WORKERS if ignores_inert else ())}
        if ignores_inert and names[index] in INERT_WITHOUT_WORKERS:
            return
        kept = [place for place, name in enumerate(names) if name not in ignored]
        alike: dict[tuple[str | None, ...], list[_Measured]] = {}
        for one in measured:
            alike.setdefault(tuple([one.values[place] for place in kept]), []).append(one)
        for group in alike.values():
            starts = [one for one in group if one.values[index] == own]
            for one in starts:
                for other in group:
                    value = other.values[index]
                    if value is not None and value != own and (one.is_bare or other.is_bare) is ignores_inert:
                        yield one, other, value


def _effect(name: str, start: str, end: str, logs: Sequence[float]) -> Effect:
    return Effect(
        setting=name,
        start=start,
        end=end,
        ratio=math.exp(sum(logs) / len(logs)),
        low=math.exp(min(logs)),
        high=math.exp(max(logs)),
        num_pairs=len(logs),
    )


def _order(value: str) -> tuple[int, float, str]:
    """Sort key: numbers and batches by size, then texts by name."""
    first = value.split(" x ")[0]
    try:
        return 0, float(first), value
    except ValueError:
        return 1, 0.0, value
