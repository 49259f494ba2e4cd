"""The verification of a published ratio: the script and the tuned settings, run for real in turns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

Ratio = tuple[float, float, float]
"""A ratio with the low and the high end of its interval."""


class Finding(StrEnum):
    """What a verification says about the published ratio."""

    HELD = "held"
    """The real ratio agrees with the published ratio."""
    EXCEEDED = "exceeded"
    """The real gain is larger than the published interval, beyond the noise."""
    FELL_SHORT = "fell_short"
    """The real ratio is below the published interval, beyond the noise."""
    SLOWER = "slower"
    """The tuned settings are slower than the script's own, beyond the noise."""
    UNCLEAR = "unclear"
    """The real ratio neither agrees with the published ratio nor contradicts it beyond the noise."""

    @property
    def is_kept(self) -> bool:
        """True when the user gets at least the published gain."""
        return self in (Finding.HELD, Finding.EXCEEDED)


VERIFIED_WORDS = {
    Finding.HELD: "verified, the claim held",
    Finding.EXCEEDED: "verified, the gain is larger than claimed",
    Finding.FELL_SHORT: "verified, the claim did not hold: the gain is smaller",
    Finding.SLOWER: "verified, the claim did not hold: the tuned settings are slower",
    Finding.UNCLEAR: "verified without an answer: the runs differ too much",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One counted run of a verification."""

    round: int
    """Number of the pair, from 0."""
    is_tuned: bool
    """True for the tuned settings, False for the script's own."""
    samples_per_second: float
    window_s: float
    """Counted seconds."""
    disturbances: tuple[str, ...] = ()
    """Possible causes of a changed rate beside the settings, as sentences."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """The published ratio beside the ratio of real runs; impossible figures raise `ValueError`."""

    claimed: Ratio
    """The published ratio."""
    real: Ratio
    """Geometric mean of the pairs' ratios, with its interval."""
    window_s: float
    """Seconds asked for in every run."""
    turns: tuple[Turn, ...]
    """All counted runs, in order of time."""
    at: str
    """End, as ISO date and time in UTC."""
    autotune: str
    """Version of the verifying release."""

    def __post_init__(self) -> None:
        for name, (ratio, low, high) in (("claimed", self.claimed), ("real", self.real)):
            if not 0 <= low <= ratio <= high < math.inf:
                raise ValueError(f"{name} {ratio!r} is not within [{low!r}, {high!r}]")

    @property
    def num_pairs(self) -> int:
        """Number of pairs of runs."""
        return len({turn.round for turn in self.turns})

    @property
    def is_within(self) -> bool:
        """True when the real ratio lies within the published interval."""
        return self.claimed[1] <= self.real[0] <= self.claimed[2]

    @property
    def finding(self) -> Finding:
        """What the figures say."""
        ratio, low, high = self.real
        if high < 1:
            return Finding.SLOWER
        if high < self.claimed[1]:
            return Finding.FELL_SHORT
        if low > max(1.0, self.claimed[2]):
            return Finding.EXCEEDED
        is_gain = low > 1 and low <= self.claimed[0] <= high
        return Finding.HELD if self.is_within or is_gain or ratio > self.claimed[2] else Finding.UNCLEAR

    @property
    def disturbances(self) -> tuple[str, ...]:
        """All different disturbances of the runs, as sentences."""
        return tuple(dict.fromkeys(sentence for turn in self.turns for sentence in turn.disturbances))

    def document(self) -> dict[str, Any]:
        """Plain values for `--json` and for the database."""
        return {
            "finding": self.finding.value,
            "is_within": self.is_within,
            "claimed": dict(zip(("ratio", "low", "high"), self.claimed, strict=True)),
            "real": dict(zip(("ratio", "low", "high"), self.real, strict=True)),
            "window_s": self.window_s,
            "turns": [
                {
                    "round": turn.round,
                    "is_tuned": turn.is_tuned,
                    "samples_per_second": turn.samples_per_second,
                    "window_s": turn.window_s,
                    "disturbances": list(turn.disturbances),
                }
                for turn in self.turns
            ],
            "at": self.at,
            "autotune": self.autotune,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The verification described by `document`."""
        claimed, real = document["claimed"], document["real"]
        turns = ({**turn, "disturbances": tuple(turn["disturbances"])} for turn in document["turns"])
        return cls(
            claimed=(claimed["ratio"], claimed["low"], claimed["high"]),
            real=(real["ratio"], real["low"], real["high"]),
            window_s=document["window_s"],
            turns=tuple(Turn(**turn) for turn in turns),
            at=document["at"],
            autotune=document["autotune"],
        )
