"""Finds the least device memory for the winner's full rate, by halving, in one process if possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from autotune.model.facts import ScriptFacts
from autotune.model.memory_share import HEADROOM, MemoryShare, ShareLook
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, TrialResult
from autotune.settings import Settings
from autotune.settings.unused_blocks import OPTIONS, UnusedBlocks
from autotune.space.search_space import SearchSpace
from autotune.spec import SearchSpec
from autotune.study.budget import Budget
from autotune.study.final_choice import FinalsResult
from autotune.study.target import Target
from autotune.units import MIB, format_seconds

MAX_LOOKS = 7
"""Most measurements with one kind of segments: each halves a range of rarely more than half of the memory."""
GRAIN_RATIO = 0.03
GRAIN_BYTES = 32 * MIB
"""A range below this share or size is not halved again: the headroom is far larger."""
RESERVED_ROOM = 1.02
"""The allocator needs slightly more than the peak it reserved."""
NOISE_RATIO = 0.02
MOST_NOISE_RATIO = 0.05
"""Least and largest loss of rate that counts as noise, whatever the intervals are."""
FRAGMENTED_RATIO = 1.2
"""Least limit over allocated memory from which growing segments are worth a process."""
NOTABLY_LESS = 0.95
"""Share of the least limit below which growing segments are worth a change of the environment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """The least limit with the full rate, for one kind of segments."""

    limit_bytes: int
    allocated_bytes: int
    """Memory in use at the peak of a step, without gaps between blocks; 0 if unknown."""
    reference: Measurement
    """The rate under the cap's share alone."""


@dataclass(kw_only=True, slots=True)
class ShareSearch:
    """Measures the winner under smaller and smaller limits of the caching allocator; no trials.

    Args:
        target: Device and cap.
        facts: Facts of the probe.
        budget: Time of the search.
        measure: Measures settings under a limit in bytes.
        is_stopped: Whether the user asked to stop.
        is_live: Whether one process may serve several measurements.
        spec: The user's wishes; values of memory_fraction bound the search.
        space: The settings of the search.
    """

    target: Target
    facts: ScriptFacts
    budget: Budget
    measure: Callable[[Settings, int], TrialResult]
    is_stopped: Callable[[], bool]
    is_live: bool
    spec: SearchSpec
    space: SearchSpace
    _looks: list[ShareLook] = field(init=False, default_factory=list)
    _fresh_s: float = field(init=False, default=0.0)
    _next_s: float = field(init=False, default=0.0)
    """Expected times of a look in a new process, and of the next look."""
    _reason: str = field(init=False, default="")

    def run(self, finals: FinalsResult | None) -> MemoryShare | None:
        """The memory of the winner; None on a CPU, without finals, and without figures of an allocator.

        Args:
            finals: The result of the finals; None when the finals were not run to the end.
        """
        if finals is None or self.target.device.is_cpu:
            return None
        winner = finals.winner
        runs = [record.result for record in finals.records if record.number == winner.number]
        reserved = max((_most(result, "peak_reserved_bytes") for result in runs), default=0)
        if not reserved:
            return None
        outside = max(result.outside_allocator_bytes or 0 for result in runs) or self.target.outside_allocator_bytes
        self._fresh_s = self.budget.fresh_s(winner.number, winner.settings)
        self._next_s = self.budget.first_look_s(winner.number, winner.settings)
        found = None if self._is_left_alone(finals) else self._halve(winner.settings)
        if found is None:
            return self._share(round(RESERVED_ROOM * reserved), outside, is_measured=False)
        plain = tuple(self._looks)
        growing = self._with_growing_segments(winner.settings, found)
        blocks = self._with_other_blocks(winner.settings, found, plain) if growing is None else None
        share = self._share(found.limit_bytes, outside)
        if growing is not None:
            share = replace(share, expandable_bytes=self._share(growing, outside).shared_bytes)
        if blocks is not None:
            value, limit = blocks
            share = replace(share, unused_blocks=value, blocks_bytes=self._share(limit, outside).shared_bytes)
        return share

    @property
    def _guard_bytes(self) -> int:
        return int(self.target.cap_fraction * self.target.device.total_bytes)

    @property
    def _least_fraction(self) -> float:
        """Smallest share allowed by the user."""
        is_asked = "memory_fraction" in self.spec.asked_names
        return min(float(value) for value in self.space.allowed["memory_fraction"]) if is_asked else 0.0

    def _is_left_alone(self, finals: FinalsResult) -> bool:
        """Whether the script or the user decides on the share, or the finals compared nothing; notes the reason."""
        reason = dict(self.space.refused).get("memory_fraction")
        if reason:
            self._reason = f"No smaller limit was measured: {reason}."
        elif self._least_fraction >= 1.0:
            self._reason = "No smaller limit was measured, as you asked."
        elif not finals.is_compared:
            self._reason = "No smaller limit was measured, since the finals compared nothing."
        elif finals.is_open:
            self._reason = "No smaller limit was measured, since the finals did not decide."
        return bool(self._reason)

    def _share(self, limit_bytes: int, outside_bytes: int, *, is_measured: bool = True) -> MemoryShare:
        # Trials end before the script validates.
        limit_bytes = min(self._guard_bytes, max(limit_bytes, self.facts.validation_bytes or 0))
        return MemoryShare(
            total_bytes=self.target.device.total_bytes,
            smallest_bytes=limit_bytes,
            shared_bytes=min(self._guard_bytes, round(HEADROOM * limit_bytes)),
            outside_allocator_bytes=outside_bytes,
            is_measured=is_measured,
            reason=self._reason,
            looks=tuple(self._looks),
        )

    def _halve(self, settings: Settings, reference: Measurement | None = None) -> _Found | None:
        """The least limit with the full rate; None when time or a failure allowed no limit below the cap's share.

        Args:
            settings: The settings.
            reference: The full rate; None = the rate of the first look.
        """
        first = self._look(settings, self._guard_bytes, reference)
        if first is None or first.measurement is None or not self._looks[-1].keeps_rate:
            self._reason = self._reason or "Under the cap alone the winner could not be measured at its full rate."
            return None
        reference = reference or first.measurement
        allocated = _most(first, "window_allocated_bytes")
        low = max(allocated, round(self._least_fraction * self.target.device.total_bytes))
        high = kept = self._guard_bytes
        peak = round(RESERVED_ROOM * _most(first, "peak_reserved_bytes"))
        if low < peak < high:
            high = peak  # The rate is expected to stay, and is measured only when no smaller limit holds.
        for _ in range(MAX_LOOKS - 1):
            is_wide = high - low > max(GRAIN_BYTES, GRAIN_RATIO * high)
            if not is_wide and kept == high:
                break
            limit = (low + high) // 2 if is_wide else high
            if self._look(settings, limit, reference) is None:
                break
            if self._looks[-1].keeps_rate:
                kept = high = limit
            elif limit == high:
                break
            else:
                low = limit
        if kept == self._guard_bytes and self._reason:
            return None
        return _Found(limit_bytes=kept, allocated_bytes=allocated, reference=reference)

    def _look(self, settings: Settings, limit_bytes: int, reference: Measurement | None) -> TrialResult | None:
        """One measurement under a limit; None, with a reason, without time for it or after a stop."""
        if self.is_stopped():
            self._reason = "You ended the search before a smaller limit was measured."
            return None
        if not self.budget.affords_look(self._next_s):
            needed = format_seconds(self._next_s)
            self._reason = f"The time of the search was spent before a further limit could be measured, in {needed}."
            return None
        result = self.measure(settings, limit_bytes)
        if result.outcome is Outcome.INTERRUPTED:
            self._reason = "The last measurement was ended by the limit of time."
            return None
        self._next_s = self._next_look_s(result)
        num_retries = _most(result, "num_window_retries")
        measured = result.measurement
        is_full = result.outcome is Outcome.OK and measured is not None and not num_retries and not result.is_near_cap
        self._looks.append(
            ShareLook(
                limit_bytes=limit_bytes,
                outcome=result.outcome.value,
                samples_per_second=measured.steady_samples_per_second if measured is not None else None,
                num_retries=num_retries,
                wall_s=result.wall_s,
                keeps_rate=is_full and measured is not None and _is_as_fast(measured, reference or measured),
            )
        )
        return result

    def _next_look_s(self, result: TrialResult) -> float:
        """Expected time of the look after this one: a process that has measured goes on without another start."""
        if result.is_live and result.outcome.is_complete:
            return result.wall_s
        if not result.outcome.is_complete:
            return self._fresh_s
        self._fresh_s = max(self._fresh_s, result.wall_s)
        window_s = result.measurement.window_s if result.measurement is not None else 0.0
        return 3 * window_s if self.is_live else result.wall_s

    def _with_growing_segments(self, settings: Settings, found: _Found) -> int | None:
        """The least limit with growing segments, if blocks leave gaps; None when not notably less."""
        is_dense = found.limit_bytes < FRAGMENTED_RATIO * found.allocated_bytes or not found.allocated_bytes
        if settings.expandable_segments or "expandable_segments" in self.spec.asked_names or is_dense:
            return None
        reason, self._reason, self._next_s = self._reason, "", self._fresh_s
        growing = self._halve(replace(settings, expandable_segments=True), found.reference)
        self._reason = reason
        if growing is None or growing.limit_bytes > NOTABLY_LESS * found.limit_bytes:
            return None
        return growing.limit_bytes

    def _with_other_blocks(
        self, settings: Settings, found: _Found, looks: Sequence[ShareLook]
    ) -> tuple[UnusedBlocks, int] | None:
        """Another treatment of unused blocks that keeps the rate under a limit where the allocator made retries.

        Args:
            settings: The settings.
            found: The least limit under the settings.
            looks: The looks that found the limit.

        Returns:
            The value with the limit; None without retries under a notably smaller limit, and without success.
        """
        limits = [look.limit_bytes for look in looks if look.num_retries and not look.keeps_rate]
        limit = max((each for each in limits if each < NOTABLY_LESS * found.limit_bytes), default=0)
        is_left_alone = "unused_blocks" in self.spec.asked_names or settings.unused_blocks is not UnusedBlocks.KEEP
        if is_left_alone or settings.expandable_segments or not limit:
            return None
        reason, self._reason = self._reason, ""
        value = next((each for each in OPTIONS if self._keeps_rate(settings, each, limit, found.reference)), None)
        self._reason = reason
        return (UnusedBlocks(value), limit) if value is not None else None

    def _keeps_rate(self, settings: Settings, blocks: str, limit_bytes: int, reference: Measurement) -> bool:
        self._next_s = self._fresh_s
        tried = replace(settings, unused_blocks=UnusedBlocks(blocks))
        return self._look(tried, limit_bytes, reference) is not None and self._looks[-1].keeps_rate


def _is_as_fast(measured: Measurement, reference: Measurement) -> bool:
    """Whether a rate is the reference's but for the noise of both windows."""
    widths = [(each.high - each.low) / (2 * each.samples_per_second) for each in (measured, reference)]
    noise_ratio = min(MOST_NOISE_RATIO, max(NOISE_RATIO, *widths))
    return measured.steady_samples_per_second >= reference.steady_samples_per_second * (1 - noise_ratio)


def _most(result: TrialResult, name: str) -> int:
    """The largest figure of any rank; 0 without a figure."""
    return max((getattr(rank, name) or 0 for rank in result.ranks), default=0)
