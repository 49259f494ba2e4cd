"""Waiting for quiet, with a clock that only waiting moves."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from autotune.host import DeviceInfo
from autotune.runner import devices as devices
from autotune.runner import quiet_wait
from autotune.runner.devices import DeviceState
from autotune.runner.quiet_wait import LEFTOVER_BYTES, NUM_VAIN_WAITS, WAIT_LIMIT_S, Quiet, QuietWait
from autotune.units import GIB

CPU = DeviceInfo(kind="cpu", name="CPU", total_bytes=16 * GIB, free_bytes=8 * GIB)
GPU = DeviceInfo(kind="cuda", name="GPU", total_bytes=80 * GIB, free_bytes=78 * GIB, uuid="GPU-0")


class Machine:
    """Four usable cores; tasks that run, look by look, and the last number for ever."""

    def __init__(
        self, device: DeviceInfo = CPU, *, running: Iterable[int] = (1,), cpus: int = 4, **options: bool
    ) -> None:
        self.time_s = 0.0
        self._running, self._cpus = list(running), cpus
        self.wait = QuietWait(device, running=self._look, now=lambda: self.time_s, sleep=self._sleep, **options).wait

    def _look(self) -> tuple[int, int]:
        return (self._running.pop(0) if len(self._running) > 1 else self._running[0]), self._cpus

    def _sleep(self, duration_s: float) -> None:
        self.time_s += duration_s


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_wait, "usable_cpus", lambda: 4.0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    found: dict[str, object] = {"used": 2 * GIB, "reasons": ()}
    monkeypatch.setattr(devices, "used_bytes", lambda device: found["used"])
    monkeypatch.setattr(
        devices,
        "state",
        lambda device: DeviceState(utilization=0.9, sm_clock_mhz=1.0, temperature_c=1.0, reasons=found["reasons"]),
    )
    return found


def test_a_quiet_machine_is_not_waited_for() -> None:
    assert Machine(running=[2]).wait() == Quiet(waited_s=0.0, is_quiet=True)


def test_a_task_that_runs_for_a_moment_is_no_noise() -> None:
    found = Machine(running=[9, 9, 1]).wait()
    assert found.is_quiet and found.waited_s < 0.05


def test_a_burst_is_waited_for() -> None:
    found = Machine(running=[9] * 12 + [1]).wait()
    assert found.is_quiet
    assert 0.3 < found.waited_s < 0.6


def test_the_wait_is_bounded_and_the_noise_is_said() -> None:
    found = Machine(running=[9]).wait()
    assert not found.is_quiet
    assert WAIT_LIMIT_S <= found.waited_s < WAIT_LIMIT_S + 0.3


def test_a_machine_that_is_never_quiet_is_not_waited_for_again_until_it_was_quiet_once() -> None:
    machine = Machine(running=[9])
    for _ in range(NUM_VAIN_WAITS):
        machine.wait()
    assert machine.wait().waited_s < 0.1
    machine._running = [1]
    assert machine.wait().is_quiet
    machine._running = [9]
    assert machine.wait().waited_s >= WAIT_LIMIT_S


def test_on_a_large_machine_others_have_cores_of_their_own() -> None:
    assert Machine(running=[60], cpus=64).wait().is_quiet
    assert not Machine(running=[64], cpus=64).wait().is_quiet


def test_a_wait_can_be_called_off() -> None:
    assert Machine(running=[9]).wait(lambda: True).waited_s < 0.1


def test_where_the_kernel_does_not_say_it_is_taken_for_quiet() -> None:
    wait = QuietWait(CPU, running=lambda: None, now=lambda: 0.0, sleep=lambda duration_s: None)
    assert wait.wait().is_quiet


def test_a_device_that_holds_more_than_when_the_search_began_is_waited_for(gpu: dict[str, object]) -> None:
    assert Machine(GPU).wait().is_quiet
    gpu["used"] = 2 * GIB + 2 * LEFTOVER_BYTES
    assert not Machine(GPU).wait().is_quiet
    assert Machine(GPU, is_shared=True).wait().is_quiet


def test_a_hot_device_is_waited_for_though_it_is_shared(gpu: dict[str, object]) -> None:
    gpu["reasons"] = ("hardware thermal slowdown",)
    assert not Machine(GPU, is_shared=True).wait().is_quiet
    gpu["reasons"] = ("power cap",)
    assert Machine(GPU).wait().is_quiet


def test_memory_of_a_waiting_process_of_the_search_is_no_noise(gpu: dict[str, object]) -> None:
    gpu["used"] = 2 * GIB + 2 * LEFTOVER_BYTES
    assert not Machine(GPU).wait().is_quiet
    assert Machine(GPU).wait(holds_memory=True) == Quiet(waited_s=0.0, is_quiet=True)
