"""The memory of one trial, on the host and its devices: what is over a limit while it runs, and its peaks after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.host import DeviceInfo
from autotune.model.facts import ScriptFacts
from autotune.model.result import RankResult
from autotune.protocol.job import TrialJob
from autotune.runner import devices as devices
from autotune.runner.device_memory import DeviceMemory
from autotune.runner.tree_memory import TreeMemory
from autotune.verdict.aggregate import device_peak_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPeaks:
    """Most memory that a trial held, as it is judged."""

    memory_bytes: int | None
    """Of what the cap is on: the device, or on a CPU the host; None where nobody knows."""
    host_bytes: int | None
    """Of the host."""
    trained_bytes: int | None
    """As `memory_bytes`, of what the trial itself came to: without a validation, which it ends before."""
    outside_allocator_bytes: int | None
    """Of the device outside the caching allocator; None on a CPU, and where it could not be told apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """Most memory that was seen from outside."""

    host_bytes: int
    device_bytes: int


def host_bytes_of_validation(facts: ScriptFacts, held_bytes: int, *, is_batch_smaller: bool) -> int:
    """Memory of the host that the validation which the probe saw will need under a trial's settings; 0 without one.

    It needs as much on top as it did in the probe, and it may need all that it held there: what training had left to it
    in the probe is none of its growth. Of smaller batches training leaves less, so there the growth alone tells.

    Args:
        facts: What the probe learned.
        held_bytes: By the trial and its workers between two steps.
        is_batch_smaller: Whether the trial's micro-batch is smaller than the probe's was.
    """
    if facts.validation_host_bytes is None:
        return 0
    with_growth = held_bytes + (facts.validation_host_growth_bytes or 0)
    return with_growth if is_batch_smaller else max(facts.validation_host_bytes, with_growth)


class TrialMemory:
    """Watches a trial's memory from outside.

    Args:
        job: With the caps, and what the probe learned.
        trains_on: The device that was chosen; each of several ranks has one like it.
        servers: Processes that the trial was forked from, whose pages are its own as well.
    """

    def __init__(self, job: TrialJob, trains_on: DeviceInfo, servers: Sequence[int] = ()) -> None:
        self.host = TreeMemory(job.host_cap_bytes or job.cap_bytes)
        """Of the trial's tree."""
        shown = () if trains_on.is_cpu or len(job.devices) < 2 else devices.visible_devices(job.devices)
        self.device = DeviceMemory(shown or devices.trained_on(trains_on, job.world_size))
        """Of its devices."""
        self._job, self._is_cpu, self._servers = job, trains_on.is_cpu, servers
        self._before_looking: _Seen | None = None

    @property
    def last_bytes(self) -> int | None:
        """What the cap is on, at the last look; None before the first, and where nobody says."""
        return self.host.last_bytes if self._is_cpu else self.device.last_bytes

    def overrun(self, pids: Sequence[int], *, is_quiet: bool) -> str:
        """Reads the memory: the flag of `Ending` for what there is too little of; empty while all suffices.

        Args:
            pids: The processes of the trial's tree now.
            is_quiet: The window is open: the tree is to be disturbed as little as can be.
        """
        is_over = self.host.check(pids, is_quiet=is_quiet, servers=self._servers)
        if self.host.is_shared_memory_full:
            return "is_shared_memory_full"
        if self._is_cpu:
            return "is_over_cap" if is_over else ""
        if self.device.check(pids) > self._job.cap_bytes:
            return "is_over_cap"
        return "is_over_host_cap" if is_over and self._job.host_cap_bytes is not None else ""

    def looking_begins(self) -> None:
        """A diagnosis begins to look at the trial: what that takes from here on is no memory of the script's."""
        self._before_looking = self._before_looking or self._seen()

    def peaks(self, ranks: Sequence[RankResult]) -> MemoryPeaks:
        """The trial's peaks, from what was seen and from what its ranks report."""
        facts, outside_bytes = self._job.facts, self._outside_allocator_bytes(ranks)
        host_bytes = self._host_peak(ranks, facts)
        return MemoryPeaks(
            memory_bytes=host_bytes if self._is_cpu else self._device_peak(ranks, outside_bytes, facts),
            host_bytes=host_bytes,
            trained_bytes=self._host_peak(ranks) if self._is_cpu else self._device_peak(ranks, outside_bytes),
            outside_allocator_bytes=outside_bytes,
        )

    def _outside_allocator_bytes(self, ranks: Sequence[RankResult]) -> int | None:
        lead = ranks[0] if ranks else None
        if self._is_cpu or lead is None:
            return None
        return self.device.outside_allocator_bytes(lead.device_free_bytes, lead.reserved_bytes)

    def _device_peak(
        self, ranks: Sequence[RankResult], outside_bytes: int | None, facts: ScriptFacts | None = None
    ) -> int | None:
        """With the validation that the facts tell of."""
        outside = self._job.outside_allocator_bytes if outside_bytes is None else outside_bytes
        validation = facts.validation_bytes if facts is not None else None
        peak = device_peak_bytes(
            ranks,
            seen_bytes=self._seen_before_looking().device_bytes,
            outside_bytes=outside or 0,
            validation_bytes=validation or 0,
        )
        return peak or None

    def _host_peak(self, ranks: Sequence[RankResult], facts: ScriptFacts | None = None) -> int | None:
        """With the validation that the facts tell of."""
        at_the_end = sum(rank.held_host_bytes or 0 for rank in ranks)
        validation = 0
        if facts is not None and at_the_end:
            is_smaller = self._has_smaller_batch()
            validation = host_bytes_of_validation(facts, at_the_end, is_batch_smaller=is_smaller)
        at_most = at_the_end + sum(rank.passing_host_bytes or 0 for rank in ranks)
        return max(self._seen_before_looking().host_bytes, at_most, validation) or None

    def _has_smaller_batch(self) -> bool:
        """Whether the trial's micro-batch is smaller than the script's own, which the probe had."""
        settings, script_settings = self._job.settings, self._job.script_settings
        if (
            settings is None
            or script_settings is None
            or settings.batch_size is None
            or script_settings.batch_size is None
        ):
            return False
        return settings.batch_size < script_settings.batch_size

    def _seen_before_looking(self) -> _Seen:
        return self._before_looking or self._seen()

    def _seen(self) -> _Seen:
        return _Seen(host_bytes=self.host.peak_bytes, device_bytes=self.device.peak_bytes)
