"""What is seen around a trial, from counters and device states that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from autotune.host import DeviceInfo
from autotune.model.surroundings import Surroundings
from autotune.protocol.codec import from_plain, to_plain
from autotune.runner import devices as devices
from autotune.runner import surroundings_watch
from autotune.runner.devices import DeviceState
from autotune.runner.pressure import Counters
from autotune.runner.surroundings_watch import COUNTERS_EVERY_S, SurroundingsWatch
from autotune.units import GIB

CPU = DeviceInfo(kind="cpu", name="CPU", total_bytes=16 * GIB, free_bytes=8 * GIB)
GPU = DeviceInfo(kind="cuda", name="GPU", total_bytes=80 * GIB, free_bytes=79 * GIB, uuid="GPU-0")


class Machine:
    """Counters that grow by so much per second, on four cores."""

    def __init__(self, device: DeviceInfo = CPU, **per_s: float) -> None:
        self.time_s, self.num_reads = 100.0, 0
        self.per_s = {
            "cpu_pressure_s": 0.0,
            "throttled_s": 0.0,
            "busy_s": 0.0,
            "ours_s": 0.0,
            "storage_read_bytes": 0.0,
        }
        self.per_s.update(per_s)
        self.watch = SurroundingsWatch(device, now=lambda: self.time_s, read=self.read, usable=4.0)

    def read(self, pids: Sequence[int], at_s: float) -> Counters:
        self.num_reads += 1
        values: dict[str, Any] = {name: rate * at_s for name, rate in self.per_s.items()}
        values["storage_read_bytes"] = int(values["storage_read_bytes"])
        return Counters(at_s=at_s, **values)

    def run(self, duration_s: float, *, in_window: bool = True) -> Machine:
        """Looks ten times a second."""
        for _ in range(round(10 * duration_s)):
            self.watch.look([1], in_window=in_window)
            self.time_s += 0.1
        return self

    @property
    def found(self) -> Surroundings:
        found = self.watch.found()
        assert found is not None
        return found


def test_only_the_open_window_counts() -> None:
    machine = Machine(busy_s=9.0).run(5.0, in_window=False)
    assert machine.watch.found() is None
    machine.run(3.0)
    assert machine.found.window_s < 3.0


def test_the_first_reading_of_a_window_is_taken_when_it_opens() -> None:
    machine = Machine().run(0.1, in_window=False).run(0.8)
    assert machine.found.window_s == pytest.approx(0.5, abs=0.11)


def test_the_cores_that_a_trial_keeps_busy_are_known_from_the_second_reading_on() -> None:
    machine = Machine(ours_s=3.0).run(0.1, in_window=False)
    assert machine.watch.cpu_fraction is None
    assert machine.run(1.0, in_window=False).watch.cpu_fraction == pytest.approx(0.75)
    machine.per_s["ours_s"] = 0.0  # A process of it is gone, and its time with it.
    assert machine.run(0.7, in_window=False).watch.cpu_fraction == 0.0


def test_one_reading_tells_nothing() -> None:
    assert Machine().run(0.1).watch.found() is None


def test_files_of_processes_are_read_twice_a_second_at_most() -> None:
    assert Machine().run(3.0).num_reads <= 3.0 / COUNTERS_EVERY_S + 1


def test_shares_are_of_the_time_between_the_first_and_the_last_reading() -> None:
    found = Machine(cpu_pressure_s=0.4, throttled_s=0.25).run(3.0).found
    assert found.window_s == pytest.approx(2.5, abs=0.2)
    assert found.cpu_pressure == pytest.approx(0.4)
    assert found.quota_throttled == pytest.approx(0.25)
    assert found.io_pressure is None


def test_each_pressure_and_the_page_cache_are_written_where_they_belong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings_watch, "page_cache_bytes", lambda: 3 * GIB)
    found = Machine(cpu_pressure_s=0.4, io_pressure_s=0.3, memory_pressure_s=0.2).run(3.0).found
    pressures = (found.cpu_pressure, found.io_pressure, found.memory_pressure)
    assert pressures == (pytest.approx(0.4), pytest.approx(0.3), pytest.approx(0.2))
    assert found.page_cache_bytes == 3 * GIB


def test_others_keep_busy_what_is_busy_and_not_ours() -> None:
    found = Machine(busy_s=3.5, ours_s=2.0).run(3.0).found
    assert found.foreign_cpus == pytest.approx(1.5)
    assert any("1.5 of 4 cores" in line for line in found.disturbances)


def test_a_trial_that_is_alone_is_not_disturbed_however_busy_it_is() -> None:
    found = Machine(busy_s=4.0, ours_s=3.9, cpu_pressure_s=0.9).run(3.0).found
    assert found.disturbances == ()


def test_the_quota_and_cold_data_are_said_and_are_no_reason_for_another_run() -> None:
    found = Machine(throttled_s=0.3, storage_read_bytes=50e6).run(3.0).found
    assert found.is_cold
    assert len(found.disturbances) == 2
    assert found.device_disturbances == ()


def test_time_that_is_held_up_on_several_cores_is_no_more_than_all_of_it() -> None:
    assert Machine(throttled_s=3.0).run(3.0).found.quota_throttled == 1.0


def test_the_devices_states_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [
        DeviceState(utilization=0.5, sm_clock_mhz=1000.0, temperature_c=60.0, reasons=("power cap",)),
        DeviceState(utilization=None, sm_clock_mhz=1500.0, temperature_c=80.0, reasons=("thermal slowdown",)),
    ]
    remaining = [*states, *states[1:] * 20]
    monkeypatch.setattr(devices, "state", lambda device: remaining.pop(0))
    machine = Machine(GPU).run(0.8)
    found = machine.found
    assert found.device_utilization == 0.5
    assert found.sm_clock_mhz is not None and 1000.0 < found.sm_clock_mhz < 1500.0
    assert found.temperature_c == 80.0
    assert found.throttle_reasons == ("power cap", "thermal slowdown")
    assert found.device_disturbances == ("The device was slowed down: thermal slowdown.",)
    assert len(remaining) >= 17, "the device is looked at five times a second at most"
    assert machine.watch.device_utilization is None, "the last look said nothing of it"


def test_a_power_cap_is_the_normal_state_of_full_load() -> None:
    assert Surroundings(window_s=1.0, throttle_reasons=("power cap",)).disturbances == ()


def test_strangers_on_the_device_are_a_disturbance() -> None:
    watch = Machine().run(2.0).watch
    found = watch.found(num_strangers=2)
    assert found is not None
    assert found.device_disturbances == ("2 processes of others came to the device.",)


def test_surroundings_keep_their_form_in_a_database() -> None:
    found = Machine(busy_s=1.0, throttled_s=0.1).run(2.0).found
    assert from_plain(Surroundings, to_plain(found)) == found


def test_impossible_readings_are_refused() -> None:
    with pytest.raises(ValueError, match="window_s"):
        Surroundings(window_s=-1.0)
