"""What changing one setting did to the rate, wherever that was seen. Pure.

Changes act nearly independently: one that cost a tenth of the rate beside some settings does not win beside others. So
pairs of trials that differ in one parameter speak for all settings, and rule out rather than predict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from autotune.search.history import History
from autotune.settings import Settings
from autotune.space.space import SearchSpace, Value

HOPELESS_EFFECT = 0.9
"""A change that left less than this of the rate wherever it was seen is not sampled: interactions are smaller."""


class Effects:
    """Effects of single changes.

    Args:
        history: Finished trials; of a raced-out one the bound counts, so that its effect is an upper bound too.
        space: Where they come from.
    """

    def __init__(self, history: History, space: SearchSpace) -> None:
        self._space = space
        self._names = space.searched
        groups: defaultdict[tuple[object, ...], dict[Value, tuple[float, bool]]] = defaultdict(dict)
        for trial in history.sound:
            row = tuple(space.params(trial.settings)[name] for name in self._names)
            for index, name in enumerate(self._names):
                others: tuple[object, ...] = (name, *row[:index], *row[index + 1 :])
                groups[others][row[index]] = (trial.samples_per_second or 0.0, trial.is_feasible)
        self._ratios: defaultdict[str, dict[tuple[Value, Value], float]] = defaultdict(dict)
        for others, rates in groups.items():
            if len(rates) > 1:
                self._learn(str(others[0]), rates)

    def _learn(self, name: str, rates: Mapping[Value, tuple[float, bool]]) -> None:
        known = self._ratios[name]
        for own, (own_rate, is_measured) in rates.items():
            for other, (other_rate, _) in rates.items():
                if other != own and is_measured and own_rate:
                    known[own, other] = max(known.get((own, other), 0.0), other_rate / own_rate)

    def hopeless_change(self, own: Settings, other: Settings) -> str | None:
        """The parameter whose change to the other settings was a clear loss wherever it was seen; None without one.

        A number beyond one that lost is taken to lose as well.
        """
        here, there = self._space.params(own), self._space.params(other)
        for name in self._names:
            if here[name] != there[name] and self._is_hopeless(name, here[name], there[name]):
                return name
        return None

    def _is_hopeless(self, name: str, own: Value, other: Value) -> bool:
        for (start, end), ratio in self._ratios[name].items():
            if start == own and ratio < HOPELESS_EFFECT and (end == other or _is_between(end, own, other)):
                return True
        return False


def _is_between(value: Value, start: Value, end: Value) -> bool:
    if isinstance(value, str) or isinstance(start, str) or isinstance(end, str):
        return False
    return min(start, end) < value < max(start, end)
