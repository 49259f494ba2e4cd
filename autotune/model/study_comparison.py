"""Two finished searches side by side: plain data, made by the tuner and shown by the reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.measure.apart import Estimate
from autotune.settings import Settings


class Yardstick(StrEnum):
    """What a comparison compares."""

    GAIN = "gain"
    """The gain of each search over the same baseline, measured within each search."""
    RATE = "rate"
    """The rates themselves, measured at different moments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The published result of one search, from its study or its tuned config."""

    name: str
    """Name given by the user."""
    settings: Settings
    rate: Estimate
    """Samples per second in the finals."""
    gain: Estimate | None
    """Ratio to the baseline, paired by rounds; None without a baseline under the cap."""
    samples_unit: str
    peak_memory_bytes: int | None
    memory_cap_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyComparison:
    """Two searches of the same script on the same machine."""

    first: Side
    second: Side
    ratio: Estimate
    """Speed of the second relative to the first."""
    by: Yardstick

    @property
    def is_beyond_noise(self) -> bool:
        """True when 1 lies outside the interval."""
        return not self.ratio.low <= 1.0 <= self.ratio.high
