"""The ratio of two rates measured at different times, computed from the interval of each."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A rate, or a ratio of rates, with its interval; impossible values raise `ValueError`."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high < math.inf:
            raise ValueError(f"an estimate needs 0 < low <= value <= high, not {self.low}, {self.value}, {self.high}")


def compare_apart(ours: Estimate, theirs: Estimate) -> Estimate:
    """The ratio of our rate to their rate, with an interval at the level of the two given intervals.

    The interval of the difference of the logarithms is recovered from the two intervals (MOVER; Zou and Donner 2008):
    each side is the hypotenuse of the two sides that push the ratio in the same direction. The interval holds the noise
    of the two measurements alone: no change of the machine between the measurements.
    """
    ratio = ours.value / theirs.value
    below = math.hypot(math.log(ours.value / ours.low), math.log(theirs.high / theirs.value))
    above = math.hypot(math.log(ours.high / ours.value), math.log(theirs.value / theirs.low))
    return Estimate(value=ratio, low=ratio * math.exp(-below), high=ratio * math.exp(above))
