"""Notices a lasting change of a rate, by a cumulative sum of its falls below a reference. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

NUM_REFERENCE = 12
"""Rates in the reference."""
LEAST_SPREAD = 0.005
SLACK = 0.03
"""Fall without consequences, as a logarithm: training slows by a little for many harmless reasons."""
THRESHOLD = 0.15
"""Least sum of falls beyond the slack in a drift."""
SPREADS_OF_SLACK, SPREADS_OF_THRESHOLD = 1.0, 6.0
"""Slack and threshold in spreads of the reference; for a noisy rate these are larger, and count."""
MOST_AT_ONCE = 0.34
"""Largest part of the threshold from one rate: three low rates may be a drift, a single low rate is none."""


@dataclass(slots=True)
class Drift:
    """Watches rates of equal intervals, one after another."""

    reference: float | None = None
    """Usual rate: median of the first rates; None before."""
    spread: float = LEAST_SPREAD
    """Standard deviation of the logarithm of the rate, in the reference."""
    fall: float = 0.0
    """Sum of the falls so far."""
    _first: list[float] = field(default_factory=list)
    _since: list[float] = field(default_factory=list)
    """Rates since the sum was last 0."""

    def note(self, rate: float) -> float | None:
        """Takes the next rate; gives the change as a share when a drift is noticed, and otherwise None.

        After a drift the new rates become the reference.

        Args:
            rate: Samples per second; impossible rates are left out.
        """
        if not 0 < rate < math.inf:
            return None
        if self.reference is None:
            self._learn(rate)
            return None
        slack = max(SLACK, SPREADS_OF_SLACK * self.spread)
        threshold = max(THRESHOLD, SPREADS_OF_THRESHOLD * self.spread)
        step = min(math.log(self.reference / rate) - slack, MOST_AT_ONCE * threshold)
        self.fall = max(0.0, self.fall + step)
        self._since = [*self._since, rate] if self.fall else []
        if self.fall < threshold:
            return None
        change = statistics.median(self._since) / self.reference - 1
        self.reference, self.fall, self._first, self._since = None, 0.0, [], []
        return change

    def _learn(self, rate: float) -> None:
        self._first.append(rate)
        if len(self._first) < NUM_REFERENCE:
            return
        logarithms = [math.log(each) for each in self._first]
        middle = statistics.median(logarithms)
        spread = 1.4826 * statistics.median(abs(each - middle) for each in logarithms)
        self.reference, self.spread = math.exp(middle), max(LEAST_SPREAD, spread)
