"""What a script's beginning is told of devices, without a driver being asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autotune.model.facts import VisibleDevices
from autotune.trial import known_devices
from autotune.trial.known_devices import VARIABLE, KnownDevices
from autotune.trial.patching import rebindable

THREE = VisibleDevices(asked_for="0,1,2", num_devices=3)


class Driver:
    """Of a machine with eight devices; counts how often it is asked."""

    def __init__(self) -> None:
        self.num_asked = 0

    def device_count(self) -> int:
        self.num_asked += 1
        return 8

    def is_available(self) -> bool:
        return self.device_count() > 0


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
    monkeypatch.setattr(torch, "accelerator", accelerator, raising=False)
    monkeypatch.setenv(VARIABLE, "0,1,2")
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


@pytest.mark.parametrize("visible", ["0", None])
def test_a_script_that_hides_devices_meanwhile_is_answered_by_torch(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, visible: str | None
) -> None:
    devices = KnownDevices(THREE)
    devices.install()
    monkeypatch.delenv(VARIABLE)
    if visible is not None:
        monkeypatch.setenv(VARIABLE, visible)
    assert torch.cuda.device_count() == 8
    monkeypatch.setenv(VARIABLE, "0,1,2")
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
    monkeypatch.delenv(VARIABLE)
    assert known_devices.ask() == VisibleDevices(asked_for=None, num_devices=8)


def test_a_process_that_cannot_ask_says_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert known_devices.ask() is None and driver.num_asked == 0
