"""Two finished searches side by side: plain data, made by the tuner and told by the reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.measure.apart import Estimate
from autotune.settings import Settings


class Yardstick(StrEnum):
    """What a comparison compares."""

    GAIN = "gain"
    """How many times faster each is than the same baseline, which was measured beside it."""
    RATE = "rate"
    """The rates themselves, of two different moments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one search found, as published: by its study, or by the tuned config that it wrote."""

    name: str
    """As the user called it."""
    settings: Settings
    rate: Estimate
    """Samples per second, in the finals."""
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
    """How many times as fast the second is."""
    by: Yardstick

    @property
    def is_beyond_noise(self) -> bool:
        """Whether 1 lies outside the interval."""
        return not self.ratio.low <= 1.0 <= self.ratio.high
