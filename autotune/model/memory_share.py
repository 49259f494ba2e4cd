"""Device memory for the full rate of a training, as found at the end of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from autotune.model.checks import check_figures

HEADROOM = 1.15
"""Shared memory over the smallest limit with the full rate: a run of days meets longer batches than a few seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareLook:
    """The winner's settings, measured under one limit of the caching allocator."""

    limit_bytes: int
    outcome: str
    """A value of `model.outcome.Outcome`."""
    samples_per_second: float | None
    """Rate within an epoch; None when nothing was measured."""
    num_retries: int
    """Times in the window that the allocator emptied its cache and asked the device again."""
    keeps_rate: bool
    """True when the rate was the full rate but for the noise, and the allocator made no retry."""
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryShare:
    """The least memory of the caching allocator for the full rate, with the room to leave around it."""

    total_bytes: int
    """Memory of the device."""
    smallest_bytes: int
    """Least limit of the allocator with the full rate; without a measurement, a little above the allocator's peak."""
    shared_bytes: int
    """Limit for people who share the device: the smallest, plus HEADROOM, at most the cap's share."""
    outside_allocator_bytes: int
    """Memory of one process outside the allocator: context, kernels, library handles."""
    is_measured: bool
    """True when a window was measured under the smallest limit."""
    reason: str = ""
    """Reason for not measuring a smaller limit, as one sentence; empty after a whole search."""
    expandable_bytes: int | None = None
    """Limit for sharing with growing segments, if notably smaller; None otherwise."""
    unused_blocks: str = ""
    """Value of the setting with a notably smaller limit, where the allocator gave memory back and asked again; empty
    otherwise."""
    blocks_bytes: int | None = None
    """Limit for sharing under this value."""
    looks: tuple[ShareLook, ...] = ()
    """All measurements, in order; the first is without a limit below the cap's share."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if not 0 < self.smallest_bytes <= self.total_bytes or not 0 < self.shared_bytes <= self.total_bytes:
            raise ValueError(f"{self.smallest_bytes} or {self.shared_bytes} bytes are no share of {self.total_bytes}")

    @property
    def shared_fraction(self) -> float:
        """The limit for sharing, as a share of the device's memory."""
        return self.shared_bytes / self.total_bytes

    @property
    def process_bytes(self) -> int:
        """Device memory of a whole process at the smallest limit."""
        return self.smallest_bytes + self.outside_allocator_bytes

    @property
    def reserved_bytes(self) -> int:
        """Device memory of a whole process that shares the device, started by `autotune run --share`."""
        return (self.expandable_bytes or self.blocks_bytes or self.shared_bytes) + self.outside_allocator_bytes

    @property
    def num_jobs(self) -> int:
        """Number of such processes on one device, at least 1."""
        return max(1, self.total_bytes // self.reserved_bytes)

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "total_bytes": self.total_bytes,
            "smallest_bytes": self.smallest_bytes,
            "shared_bytes": self.shared_bytes,
            "shared_fraction": self.shared_fraction,
            "outside_allocator_bytes": self.outside_allocator_bytes,
            "reserved_bytes": self.reserved_bytes,
            "num_jobs": self.num_jobs,
            "is_measured": self.is_measured,
            "reason": self.reason,
            "expandable_bytes": self.expandable_bytes,
            "unused_blocks": self.unused_blocks,
            "blocks_bytes": self.blocks_bytes,
            "looks": [
                {
                    "limit_bytes": look.limit_bytes,
                    "outcome": look.outcome,
                    "samples_per_second": look.samples_per_second,
                    "num_retries": look.num_retries,
                    "keeps_rate": look.keeps_rate,
                    "wall_s": look.wall_s,
                }
                for look in self.looks
            ],
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The shares described by `document`."""
        derived = ("shared_fraction", "reserved_bytes", "num_jobs", "looks")
        values = {name: value for name, value in document.items() if name not in derived}
        return cls(**values, looks=tuple(ShareLook(**look) for look in document["looks"]))
