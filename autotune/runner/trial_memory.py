"""Memory of one trial on the host and the devices: limits during the trial, and the peaks afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.host import DeviceInfo
from autotune.model.facts import ScriptFacts
from autotune.model.result import RankResult
from autotune.protocol.job import TrialJob
from autotune.runner import devices as devices
from autotune.runner.device_memory import DeviceMemory
from autotune.runner.stop_cause import StopCause
from autotune.runner.tree_memory import TreeMemory
from autotune.verdict.aggregate import device_peak_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPeaks:
    """Peaks of a trial for the judgement, in bytes."""

    memory_bytes: int | None
    """Memory under the cap: the device's, or on a CPU the host's; None if unknown."""
    host_bytes: int | None
    """Memory of the host."""
    trained_bytes: int | None
    """As `memory_bytes`, without the script's validation: the trial ends earlier."""
    outside_allocator_bytes: int | None
    """Device memory outside the caching allocator; None on a CPU, or if unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """Peaks seen from outside, in bytes."""

    host_bytes: int
    device_bytes: int


def host_bytes_of_validation(facts: ScriptFacts, held_bytes: int, *, is_batch_smaller: bool) -> int:
    """Host memory of the script's validation under a trial's settings, in bytes; 0 for scripts without a validation.

    A validation adds the growth seen in the probe, and may need all memory seen in the probe, because memory left by
    training was no part of the growth. Training on smaller batches leaves less, so the growth alone counts for them.

    Args:
        facts: Findings of the probe.
        held_bytes: Memory of the trial and the workers between two steps.
        is_batch_smaller: Whether the trial's micro-batch is smaller than the probe's.
    """
    if facts.validation_host_bytes is None:
        return 0
    with_growth = held_bytes + (facts.validation_host_growth_bytes or 0)
    return with_growth if is_batch_smaller else max(facts.validation_host_bytes, with_growth)


class TrialMemory:
    """Watches a trial's memory from outside.

    Args:
        job: Job with the caps and the probe's findings.
        trains_on: The chosen device; each of several ranks has an equal device.
        servers: Processes that the trial was forked from; their pages count as the trial's.
    """

    def __init__(self, job: TrialJob, trains_on: DeviceInfo, servers: Sequence[int] = ()) -> None:
        self.host = TreeMemory(job.host_cap_bytes or job.cap_bytes)
        """Memory of the trial's tree."""
        shown = () if trains_on.is_cpu or len(job.devices) < 2 else devices.visible_devices(job.devices)
        self.device = DeviceMemory(shown or devices.trained_on(trains_on, job.world_size))
        """Memory of the trial's devices."""
        self._job, self._is_cpu, self._servers = job, trains_on.is_cpu, servers
        self._before_looking: _Seen | None = None

    def begin_anew(self, job: TrialJob) -> None:
        """Forgets the peaks, for another measurement in the trial's processes.

        Args:
            job: The job of the other measurement.
        """
        self._job, self._before_looking = job, None
        self.host.begin_anew()
        self.device.begin_anew()

    @property
    def last_bytes(self) -> int | None:
        """Memory under the cap at the last look, in bytes; None before the first look, or if unknown."""
        return self.host.last_bytes if self._is_cpu else self.device.last_bytes

    def overrun(self, pids: Sequence[int], *, is_quiet: bool) -> StopCause | None:
        """Reads the memory; the cause to stop the trial, or None.

        Args:
            pids: The processes of the trial's tree now.
            is_quiet: Whether the window is open, and readings must disturb the trial as little as possible.
        """
        is_over = self.host.check(pids, is_quiet=is_quiet, servers=self._servers)
        if self.host.is_shared_memory_full:
            return StopCause.SHARED_MEMORY_FULL
        if self._is_cpu:
            return StopCause.OVER_CAP if is_over else None
        if self.device.check(pids) > self._job.cap_bytes:
            return StopCause.OVER_CAP
        return StopCause.OVER_HOST_CAP if is_over and self._job.host_cap_bytes is not None else None

    def looking_begins(self) -> None:
        """Notes the start of a diagnosis's observation, which takes memory that is not the script's."""
        self._before_looking = self._before_looking or self._seen()

    def peaks(self, ranks: Sequence[RankResult]) -> MemoryPeaks:
        """The trial's peaks, from the readings and from the ranks' reports."""
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
        """The peak with the validation in the facts; without facts, of the trial alone."""
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
        """The peak with the validation in the facts; without facts, of the trial alone."""
        at_the_end = sum(rank.held_host_bytes or 0 for rank in ranks)
        validation = 0
        if facts is not None and at_the_end:
            is_smaller = self._has_smaller_batch()
            validation = host_bytes_of_validation(facts, at_the_end, is_batch_smaller=is_smaller)
        at_most = at_the_end + sum(rank.passing_host_bytes or 0 for rank in ranks)
        return max(self._seen_before_looking().host_bytes, at_most, validation) or None

    def _has_smaller_batch(self) -> bool:
        """Whether the trial's micro-batch is smaller than the script's own, as used in the probe."""
        settings, script_settings = self._job.request.settings, self._job.script_settings
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
