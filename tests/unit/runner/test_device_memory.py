"""A trial's share of its devices, from readings that are made up."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from autotune.host import DeviceInfo
from autotune.runner import devices as devices
from autotune.runner.device_memory import PROCESSES_EVERY_S, DeviceMemory
from autotune.units import GIB, MIB

DEVICE = DeviceInfo(kind="cuda", name="GPU", total_bytes=80 * GIB, free_bytes=79 * GIB, uuid="GPU-0")
SECOND = DeviceInfo(kind="cuda", name="GPU", total_bytes=80 * GIB, free_bytes=79 * GIB, uuid="GPU-1")


@dataclass
class Nvml:
    """What NVML says, by UUID."""

    used: dict[str, int | None] = field(default_factory=lambda: {"GPU-0": 1 * GIB, "GPU-1": 1 * GIB})
    running: dict[str, dict[int, int]] = field(default_factory=lambda: {"GPU-0": {}, "GPU-1": {}})
    time_s: float = 0.0

    def later(self) -> None:
        self.time_s += PROCESSES_EVERY_S


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake = Nvml()
    monkeypatch.setattr(devices, "used_bytes", lambda device: fake.used[device.uuid])
    monkeypatch.setattr(devices, "processes", lambda device: dict(fake.running[device.uuid]))
    return fake


def watch(nvml: Nvml, *trained_on: DeviceInfo) -> DeviceMemory:
    return DeviceMemory(trained_on, now=lambda: nvml.time_s)


def test_the_growth_since_the_beginning_is_the_trials(nvml: Nvml) -> None:
    memory = watch(nvml, DEVICE)
    nvml.used["GPU-0"] = 6 * GIB
    assert memory.check([7]) == 5 * GIB
    nvml.used["GPU-0"] = 3 * GIB
    assert memory.check([7]) == memory.peak_bytes == 5 * GIB


def test_what_a_neighbour_grows_by_is_not_charged(nvml: Nvml) -> None:
    nvml.running["GPU-0"] = {900: 1 * GIB}
    memory = watch(nvml, DEVICE)
    nvml.used["GPU-0"], nvml.running["GPU-0"] = 6 * GIB, {900: 4 * GIB, 901: 2 * GIB}
    assert memory.check([7]) == 2 * GIB


def test_what_a_neighbour_gives_back_does_not_hide_the_trials_growth(nvml: Nvml) -> None:
    nvml.used["GPU-0"], nvml.running["GPU-0"] = 11 * GIB, {900: 10 * GIB}
    memory = watch(nvml, DEVICE)
    nvml.used["GPU-0"], nvml.running["GPU-0"] = 4 * GIB, {901: 3 * GIB}
    assert memory.check([7]) == 3 * GIB


def test_a_stranger_that_came_later_is_told_apart_where_ids_can_be_compared(nvml: Nvml) -> None:
    memory = watch(nvml, DEVICE)
    nvml.used["GPU-0"], nvml.running["GPU-0"] = 6 * GIB, {7: 2 * GIB, 901: 3 * GIB}
    assert memory.check([7, 8]) == 2 * GIB
    assert memory.num_newcomers == 1


def test_in_a_container_a_newcomer_is_taken_for_the_trial(nvml: Nvml) -> None:
    memory = watch(nvml, DEVICE)
    nvml.used["GPU-0"], nvml.running["GPU-0"] = 6 * GIB, {4711: 5 * GIB}
    assert memory.check([7]) == 5 * GIB
    assert memory.num_newcomers == 0


def test_the_list_of_processes_is_not_asked_for_at_every_look(nvml: Nvml) -> None:
    nvml.running["GPU-0"] = {900: 1 * GIB}
    memory = watch(nvml, DEVICE)
    memory.check([7])
    nvml.used["GPU-0"], nvml.running["GPU-0"] = 3 * GIB, {900: 3 * GIB}
    assert memory.check([7]) == 2 * GIB
    nvml.used["GPU-0"] = 4 * GIB
    nvml.later()
    assert memory.check([7]) == 2 * GIB


def test_of_several_devices_the_fullest_counts(nvml: Nvml) -> None:
    memory = watch(nvml, DEVICE, SECOND)
    nvml.used["GPU-1"] = 9 * GIB
    assert memory.check([7]) == 8 * GIB


def test_without_readings_there_is_no_growth(nvml: Nvml) -> None:
    nvml.used["GPU-0"] = None
    memory = watch(nvml, DEVICE)
    assert memory.check([7]) == 0
    assert memory.outside_allocator_bytes(10 * GIB, 1 * GIB) is None
    assert DeviceMemory(()).check([7]) == 0


def test_what_the_process_holds_beside_its_allocator_is_the_rest_of_the_growth(nvml: Nvml) -> None:
    memory = watch(nvml, DEVICE)
    assert memory.outside_allocator_bytes(80 * GIB - 6 * GIB, 4 * GIB + 500 * MIB) == GIB - 500 * MIB
    assert memory.outside_allocator_bytes(79 * GIB, 4 * GIB) == 0
    assert memory.outside_allocator_bytes(None, 4 * GIB) is None
    assert memory.outside_allocator_bytes(70 * GIB, None) is None


def test_with_strangers_about_nobody_can_tell_what_lies_outside(nvml: Nvml) -> None:
    memory = watch(nvml, DEVICE)
    nvml.running["GPU-0"] = {7: 2 * GIB, 901: 3 * GIB}
    memory.check([7])
    assert memory.outside_allocator_bytes(74 * GIB, 4 * GIB) is None


def test_an_id_of_the_host_that_looks_like_one_of_ours_was_there_before_and_is_not(nvml: Nvml) -> None:
    nvml.running["GPU-0"] = {7: 1 * GIB}
    memory = watch(nvml, DEVICE)
    nvml.used["GPU-0"], nvml.running["GPU-0"] = 6 * GIB, {7: 4 * GIB, 4711: 2 * GIB}
    assert memory.check([7]) == 2 * GIB
    assert memory.num_newcomers == 0
