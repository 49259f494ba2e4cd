"""Seconds that a trial costs, and seconds left for trials: the search takes the largest expected gain per second."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autotune.settings import Settings

A_MINUTE_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Prices of trials at one moment of a search."""

    trial_s: Callable[[Settings], float]
    """Returns the expected seconds of a trial of settings; 0 where time does not count."""
    spare_s: Callable[[Settings], float]
    """Returns the seconds left for trials, when the finals shall be able to run the settings of the next trial."""
    return_s: Callable[[Settings], float] = lambda settings: 0.0
    """Returns the expected seconds to start the waiting process again, if a trial of settings ends that process."""
    can_go_on: Callable[[Settings], bool] = lambda settings: True
    """In a search without time for new processes: returns whether the running process can change to settings."""

    def affords(self, settings: Settings) -> bool:
        """True when the time left suffices for a trial of settings, and for finals with these settings."""
        return self.spare_s(settings) >= self.trial_s(settings)

    def num_affordable(self, settings: Settings) -> float:
        """Number of trials in the time left, at the price of these settings; may be infinite."""
        price_s = self.trial_s(settings)
        return self.spare_s(settings) / price_s if price_s > 0 else math.inf

    def per_second(self, gain: float, settings: Settings) -> float:
        """The gain of a trial per second of the trial and of the return; where time does not count, the gain itself."""
        price_s = self.trial_s(settings) + self.return_s(settings)
        return gain / price_s if price_s > 0 else gain

    def per_minute(self, gain_ratio: float | None, settings: Settings) -> float | None:
        """Expected gain of the next minute as a share of the best rate; None when unknown or time does not count."""
        price_s = self.trial_s(settings)
        return None if gain_ratio is None or price_s <= 0 else gain_ratio * A_MINUTE_S / price_s


FREE = Prices(trial_s=lambda settings: 0.0, spare_s=lambda settings: math.inf)
"""Time does not count, as in a search of a function."""
