"""Two rates that were measured at different times: how many times one is the other, from the interval of each."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A rate, or a ratio of rates, with its interval; impossible ones raise `ValueError`."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high < math.inf:
            raise ValueError(f"an estimate needs 0 < low <= value <= high, not {self.low}, {self.value}, {self.high}")


def compare_apart(ours: Estimate, theirs: Estimate) -> Estimate:
    """How many times ours is theirs, with an interval at the level that both have.

    The interval of the difference of the logarithms is recovered from the two intervals (MOVER; Zou and Donner 2008):
    each side of it is as long as the hypotenuse of the sides that count there. It knows the noise that is in the two
    and no other: what changed on the machine between the two measurements is not in it.
    """
    ratio = ours.value / theirs.value
    below = math.hypot(math.log(ours.value / ours.low), math.log(theirs.high / theirs.value))
    above = math.hypot(math.log(ours.high / ours.value), math.log(theirs.value / theirs.low))
    return Estimate(value=ratio, low=ratio * math.exp(-below), high=ratio * math.exp(above))
