"""The surroundings of a trial during its window, as seen by the tuner from outside."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.model.checks import check_figures

FOREIGN_SHARE = 0.25
"""A trial counts as disturbed above this share of usable cores in use by foreign processes."""
QUOTA_SHARE = 0.1
"""A trial counts as disturbed above this share of its window under CPU throttling."""
COLD_BYTES_PER_S = 16 << 20
"""A trial reading from storage at a higher rate did not find its data in the page cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Readings over one window; None where the system gives no reading.

    All readings are stored with the trial. A disturbance is a reading beyond the control of the settings. A disturbance
    of the device is worth another run, because the search cannot cancel the effect.
    """

    window_s: float
    """Time between the first and the last reading."""
    usable_cpus: float = 1.0
    """Cores available to the trial."""
    waited_s: float = 0.0
    """Time that the tuner waited for a quiet machine before the trial."""
    was_quiet: bool = True
    """True when the machine was quiet at the start."""
    cpu_pressure: float | None = None
    """Share of the time in which some process on the machine, the trial included, waited for a core."""
    io_pressure: float | None = None
    """Share of the time in which some process waited for storage."""
    memory_pressure: float | None = None
    """Share of the time in which some process waited for memory."""
    quota_throttled: float | None = None
    """Share of the time in which a CPU quota throttled the trial's group on some core."""
    foreign_cpus: float | None = None
    """Usable cores kept busy by foreign processes, including time taken by the hypervisor."""
    own_cpus: float | None = None
    """Cores kept busy by the trial."""
    storage_read_bytes: int | None = None
    """Bytes that the trial read from storage, not from the page cache."""
    page_cache_bytes: int | None = None
    """Size of the page cache at the end."""
    device_utilization: float | None = None
    """Share of the time in which the device ran some kernel."""
    sm_activity: float | None = None
    """Share of the device's multiprocessors at work; None for devices before Hopper, and without permission."""
    power_w: float | None = None
    """Mean power of the device."""
    sm_clock_mhz: float | None = None
    """Mean clock of the device."""
    temperature_c: float | None = None
    """Highest temperature of the device."""
    throttle_reasons: tuple[str, ...] = ()
    """Reasons why the device ran below its full speed, in any reading."""
    num_strangers: int = 0
    """Foreign processes that appeared on the device after the trial had begun."""

    def __post_init__(self) -> None:
        """Refuses impossible readings."""
        check_figures(self)

    @property
    def is_cold(self) -> bool:
        """True when the trial's data came from storage: the next trial finds the data in the page cache."""
        return self.storage_read_bytes is not None and self.storage_read_bytes > COLD_BYTES_PER_S * self.window_s

    @property
    def device_disturbances(self) -> tuple[str, ...]:
        """Disturbances of the device, as sentences; worth another run."""
        found = []
        hot = [reason for reason in self.throttle_reasons if reason in HARDWARE_REASONS]
        if hot:
            found.append(f"The device was slowed down: {', '.join(hot)}.")
        if self.num_strangers:
            found.append(f"{self.num_strangers} processes of others came to the device.")
        return tuple(found)

    @property
    def is_beside_load(self) -> bool:
        """True when other programs kept many cores busy, to the advantage of settings with few threads."""
        return self.foreign_cpus is not None and self.foreign_cpus > FOREIGN_SHARE * self.usable_cpus

    @property
    def disturbances_by_others(self) -> tuple[str, ...]:
        """Disturbances by other programs, as sentences; in the finals worth another run."""
        found = self.device_disturbances
        if not self.is_beside_load:
            return found
        return (*found, f"Others kept {self.foreign_cpus:.1f} of {self.usable_cpus:g} cores busy.")

    @property
    def disturbances(self) -> tuple[str, ...]:
        """Possible causes of a changed measurement beside the settings, as sentences."""
        found = list(self.disturbances_by_others)
        if self.quota_throttled is not None and self.quota_throttled > QUOTA_SHARE:
            found.append(f"The CPU quota slowed the trial for {self.quota_throttled:.0%} of the time.")
        if self.is_cold:
            found.append("The trial's data came from storage, not from the page cache.")
        if not self.was_quiet and not found:
            found.append("Other programs were busy when the trial began.")
        return tuple(found)


HARDWARE_REASONS = ("hardware slowdown", "thermal slowdown", "hardware thermal slowdown", "power brake")
"""Throttle reasons that full load alone does not cause, unlike a power cap."""
