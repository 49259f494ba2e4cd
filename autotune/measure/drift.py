"""Notices a lasting change of a rate, by a cumulative sum of its falls below a reference. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, field

NUM_REFERENCE, MOST_REFERENCE = 12, 72
"""Rates in the first reference, and in the final reference: slow noise moves the median of few rates by itself."""
LEAST_SPREAD = 0.005
SLACK = 0.03
"""Fall without consequences, as a logarithm: training slows by a little for many harmless reasons."""
THRESHOLD = 0.15
"""Least sum of falls beyond the slack in a drift."""
SPREADS_OF_SLACK, SPREADS_OF_THRESHOLD = 1.25, 8.0
"""Slack and threshold in spreads of the reference; for a noisy rate these are larger, and count."""
MOST_PERSISTENCE = 3.0
"""Largest factor for noise that lasts: a dozen rates cannot tell more."""
MOST_AT_ONCE = 0.34
"""Largest part of the threshold from one rate: three low rates may be a drift, a single low rate is none."""


@dataclass(slots=True)
class Drift:
    """Watches rates of equal intervals, one after another."""

    reference: float | None = None
    """Usual rate: median of the first rates; None before."""
    spread: float = LEAST_SPREAD
    """Standard deviation of the logarithm of the rate, in the reference."""
    persistence: float = 1.0
    """Factor of the noise on sums and means of rates, above 1 for noise that lasts for some intervals."""
    fall: float = 0.0
    """Sum of the falls so far."""
    _first: list[float] = field(default_factory=list)
    _since: list[float] = field(default_factory=list)
    """Rates since the sum was last 0."""
    _latest: list[float] = field(default_factory=list)
    """Rates too young for the reference: a drift among them is told first."""

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
        error = self.persistence * self.spread / math.sqrt(len(self._first))
        slack = max(SLACK, SPREADS_OF_SLACK * self.spread) + error
        threshold = max(THRESHOLD, SPREADS_OF_THRESHOLD * self.spread * self.persistence)
        step = min(math.log(self.reference / rate) - slack, MOST_AT_ONCE * threshold)
        self.fall = max(0.0, self.fall + step)
        self._since = [*self._since, rate] if self.fall else []
        if self.fall < threshold:
            self._refine(rate)
            return None
        change = statistics.median(self._since) / self.reference - 1
        self.reference, self.fall, self._first, self._since, self._latest = None, 0.0, [], [], []
        return change

    def _refine(self, rate: float) -> None:
        """Adds the rate before the latest to the reference, until the reference has all its rates."""
        if len(self._first) < MOST_REFERENCE:
            self._latest.append(rate)
            if len(self._latest) > NUM_REFERENCE:
                self._learn(self._latest.pop(0))

    def _learn(self, rate: float) -> None:
        self._first.append(rate)
        if len(self._first) < NUM_REFERENCE:
            return
        logarithms = [math.log(each) for each in self._first]
        middle = statistics.median(logarithms)
        spread = 1.4826 * statistics.median(abs(each - middle) for each in logarithms)
        self.reference, self.spread = math.exp(middle), max(LEAST_SPREAD, spread)
        self.persistence = _persistence([each - middle for each in logarithms])


def _persistence(noise: list[float]) -> float:
    """Standard deviation of a long sum of the noise over that of a sum of independent noise, 1 to MOST_PERSISTENCE.

    By the correlation of neighbours, as of noise that decays at a constant rate.
    """
    power = sum(each**2 for each in noise)
    if not power:
        return 1.0
    correlation = max(0.0, sum(a * b for a, b in itertools.pairwise(noise)) / power)
    return min(MOST_PERSISTENCE, math.sqrt((1 + correlation) / max(1e-9, 1 - correlation)))
