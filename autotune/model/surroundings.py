"""What went on around a trial while its window was open, as the tuner saw it from outside."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.model.checks import check_figures

FOREIGN_SHARE = 0.25
"""Share of the usable cores that others may keep busy before it is called a disturbance."""
QUOTA_SHARE = 0.1
"""Share of the window for which the CPU quota may hold the trial up before that is said."""
COLD_BYTES_PER_S = 16 << 20
"""From this rate of reading on, the data did not come from the page cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Readings over one window; None where the system does not say.

    All of it is written with the trial. What the settings can do nothing about is a disturbance; of these, the ones of
    the device are worth another run, since nothing else of the search cancels them.
    """

    window_s: float
    """Time between the first and the last reading."""
    usable_cpus: float = 1.0
    """Cores that the trial may use."""
    waited_s: float = 0.0
    """How long the tuner waited for quiet before it started the trial."""
    was_quiet: bool = True
    """Whether it was quiet then."""
    cpu_pressure: float | None = None
    """Share of the time in which somebody on the machine, the trial included, waited for a core."""
    io_pressure: float | None = None
    """The same for storage."""
    memory_pressure: float | None = None
    """The same for memory."""
    quota_throttled: float | None = None
    """Share of the time for which a CPU quota held the trial's group up on some core."""
    foreign_cpus: float | None = None
    """Cores that others kept busy, of those that the trial may use; what a host took away is among it."""
    storage_read_bytes: int | None = None
    """What the trial read from storage, and not from the page cache."""
    page_cache_bytes: int | None = None
    """Files in the page cache at the end."""
    device_utilization: float | None = None
    """Share of the time in which the device ran some kernel."""
    sm_clock_mhz: float | None = None
    """Mean clock of the device."""
    temperature_c: float | None = None
    """Highest temperature of the device."""
    throttle_reasons: tuple[str, ...] = ()
    """Why the device ran slower than it could, at any look."""
    num_strangers: int = 0
    """Processes of others that came to the device after the trial had begun."""

    def __post_init__(self) -> None:
        """Refuses impossible readings."""
        check_figures(self)

    @property
    def is_cold(self) -> bool:
        """Whether the trial's data came from storage: the next trial finds it in the page cache."""
        return self.storage_read_bytes is not None and self.storage_read_bytes > COLD_BYTES_PER_S * self.window_s

    @property
    def device_disturbances(self) -> tuple[str, ...]:
        """What happened to the device, as sentences; worth another run."""
        found = []
        hot = [reason for reason in self.throttle_reasons if reason in HARDWARE_REASONS]
        if hot:
            found.append(f"The device was slowed down: {', '.join(hot)}.")
        if self.num_strangers:
            found.append(f"{self.num_strangers} processes of others came to the device.")
        return tuple(found)

    @property
    def disturbances(self) -> tuple[str, ...]:
        """All that may have changed the figure and is not the settings' doing, as sentences."""
        found = list(self.device_disturbances)
        if self.foreign_cpus is not None and self.foreign_cpus > FOREIGN_SHARE * self.usable_cpus:
            found.append(f"Others kept {self.foreign_cpus:.1f} of {self.usable_cpus:g} cores busy.")
        if self.quota_throttled is not None and self.quota_throttled > QUOTA_SHARE:
            found.append(f"The CPU quota held it up for {self.quota_throttled:.0%} of the time.")
        if self.is_cold:
            found.append("Its data came from storage, and not from the page cache.")
        if not self.was_quiet and not found:
            found.append("Others were at work when it began.")
        return tuple(found)


HARDWARE_REASONS = ("hardware slowdown", "thermal slowdown", "hardware thermal slowdown", "power brake")
"""Reasons that are no state of normal full load, as a power cap is."""
