"""What a script's beginning is told of devices, without a driver being asked."""

from __future__ import annotations

import copy
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autotune.model.facts import VisibleDevices
from autotune.protocol.environment import VISIBLE_DEVICES
from autotune.trial.start import known_devices
from autotune.trial.start.known_devices import KnownDevices
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import rebindable

THREE = VisibleDevices(asked_for="0,1,2", num_devices=3, capabilities=((9, 0), (9, 0), (7, 5)))


class Driver:
    """Of a machine with eight devices; counts how often it is asked."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.told: list[object] = []

    def device_count(self) -> int:
        self.num_asked += 1
        return 8

    def is_available(self) -> bool:
        return self.device_count() > 0

    def set_device(self, device: object) -> None:
        self.num_asked += 1
        self.told.append(device)

    def current_device(self) -> int:
        self.num_asked += 1
        return 5

    def get_device_properties(self, device: object = None) -> SimpleNamespace:
        self.num_asked += 1
        return SimpleNamespace(major=8, minor=6, name=f"device {device}")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """What torch asks here."""
    driver = Driver()
    accelerator = SimpleNamespace(
        current_accelerator=lambda: torch.device("cuda"),
        device_count=lambda: driver.device_count(),
        is_available=lambda: driver.is_available(),
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: driver.device_count())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: driver.is_available())
    for name in ("set_device", "current_device", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, name, getattr(driver, name))
    monkeypatch.setattr(torch, "accelerator", accelerator, raising=False)
    monkeypatch.setenv(VISIBLE_DEVICES, "0,1,2")
    return driver


def answers(owner: Any) -> tuple[object, object]:
    """To both questions."""
    return owner.is_available(), owner.device_count()


@pytest.mark.parametrize("owner", ["cuda", "accelerator"])
def test_the_driver_is_not_asked_until_the_seam(driver: Driver, owner: str) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    assert answers(getattr(torch, owner)) == (True, 3) and driver.num_asked == 0
    devices.remove()
    assert answers(getattr(torch, owner)) == (True, 8) and driver.num_asked == 2


def test_who_kept_the_functions_is_told_the_truth_in_the_trial(driver: Driver) -> None:
    rebindable(torch.cuda, "device_count")
    of_a_library = torch.cuda.device_count
    devices = KnownDevices(THREE)
    devices.install()
    of_the_script = torch.cuda.is_available
    assert of_a_library() == 3 and of_the_script() is True and driver.num_asked == 0
    devices.remove()
    assert of_a_library() == 8 and of_the_script() is True and driver.num_asked == 2


def test_where_there_is_no_device_there_is_none_available(driver: Driver) -> None:
    devices = KnownDevices(VisibleDevices(asked_for="0,1,2", num_devices=0))
    devices.install()
    assert answers(torch.cuda) == (False, 0) and driver.num_asked == 0
    devices.remove()


@pytest.mark.parametrize("device", [1, "cuda:1", torch.device("cuda", 1)])
def test_a_device_is_made_the_current_one_in_the_trial_alone(driver: Driver, device: object) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device(device)  # type: ignore[arg-type]
    assert torch.cuda.current_device() == 1 and driver.num_asked == 0
    devices.remove()
    assert driver.told == []
    devices.catch_up()
    assert driver.told == [1] and torch.cuda.current_device() == 5


def test_where_the_script_chooses_no_device_none_is_chosen_in_the_trial(driver: Driver) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    assert torch.cuda.current_device() == 0
    devices.remove()
    devices.catch_up()
    assert driver.told == [] and driver.num_asked == 0


@pytest.mark.parametrize("device", [3, -1, "cuda:7", torch.device("cuda"), "cpu", None])
def test_a_device_that_there_is_not_is_torchs_own_affair_at_once(driver: Driver, device: object) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    torch.cuda.set_device(device)  # type: ignore[arg-type]
    devices.remove()
    devices.catch_up()
    assert driver.told == [device]


def test_a_device_of_another_thread_is_torchs_own_affair_at_once(driver: Driver) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    thread = threading.Thread(target=torch.cuda.set_device, args=(2,))
    thread.start()
    thread.join()
    assert driver.told == [2] and torch.cuda.current_device() == 0
    devices.remove()


def test_the_capability_of_a_device_is_known_and_all_else_of_it_is_asked(driver: Driver) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    torch.cuda.set_device(2)
    for asked, capability in ((None, (7, 5)), (0, (9, 0)), ("cuda:1", (9, 0)), (torch.device("cuda"), (7, 5))):
        properties = torch.cuda.get_device_properties(asked)
        assert (properties.major, properties.minor) == capability
    assert driver.num_asked == 0
    assert torch.cuda.get_device_properties("cuda:1").name == "device 1" and driver.num_asked == 1
    assert torch.cuda.get_device_properties(3).major == 8 and driver.num_asked == 2
    devices.remove()
    assert torch.cuda.get_device_properties(0).major == 8 and driver.num_asked == 3


@pytest.mark.skipif(torch.version.hip is not None, reason="torch asks nothing there")
def test_whether_a_device_computes_in_bf16_is_known_without_the_driver(driver: Driver) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    assert torch.cuda.is_bf16_supported() and torch.cuda.get_device_capability() == (9, 0)
    assert driver.num_asked == 0
    devices.remove()


def test_what_a_copy_of_the_properties_asks_of_its_class_starts_nothing(driver: Driver) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    properties = copy.copy(torch.cuda.get_device_properties(0))
    assert (properties.major, properties.minor) == (9, 0) and driver.num_asked == 0
    devices.remove()


def test_properties_are_torchs_own_where_the_probe_had_not_started_cuda(driver: Driver) -> None:
    devices = KnownDevices(VisibleDevices(asked_for="0,1,2", num_devices=3))
    devices.install()
    assert torch.cuda.get_device_properties(0).major == 8 and driver.num_asked == 1
    devices.remove()


@pytest.mark.parametrize("visible", ["0", None])
def test_a_script_that_hides_devices_meanwhile_is_answered_by_torch(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, visible: str | None
) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    monkeypatch.delenv(VISIBLE_DEVICES)
    if visible is not None:
        monkeypatch.setenv(VISIBLE_DEVICES, visible)
    assert torch.cuda.device_count() == 8
    monkeypatch.setenv(VISIBLE_DEVICES, "0,1,2")
    assert torch.cuda.device_count() == 3
    devices.remove()


def test_nothing_is_touched_where_nothing_is_known(driver: Driver) -> None:
    original = torch.cuda.device_count
    KnownDevices(None).install()
    assert torch.cuda.device_count is original


def test_another_accelerator_is_left_alone(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    devices = KnownDevices(THREE)
    devices.install()
    assert torch.accelerator.device_count() == 8
    devices.remove()


def test_the_probe_asks_and_says_for_which_devices(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known_devices.ask() == VisibleDevices(asked_for="0,1,2", num_devices=8)
    monkeypatch.delenv(VISIBLE_DEVICES)
    assert known_devices.ask() == VisibleDevices(asked_for=None, num_devices=8)


def test_the_probe_says_what_devices_can_do_where_it_has_started_cuda(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_names, "is_cuda_on", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, index))
    asked = known_devices.ask()
    assert asked is not None and asked.capabilities == tuple((8, index) for index in range(8))


def test_a_process_that_cannot_ask_says_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert known_devices.ask() is None and driver.num_asked == 0
