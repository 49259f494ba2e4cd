"""Answers a script's early questions about CUDA devices with the probe's answers, so that CUDA does not start.

Nearly every script asks early whether a device exists, and a fork cannot use a driver started before the fork. torch
can ask through NVML without starting the driver, but some builds start the driver all the same. Hugging Face's
`TrainingArguments` also chooses a device, and asks whether the device computes in bf16, long before a model is built.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from autotune.model.facts import VisibleDevices
from autotune.protocol.environment import VISIBLE_DEVICES
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap


def ask() -> VisibleDevices | None:
    """Asks the driver for the devices of this process; None in a fork of a process that has started CUDA.

    A process that calls this function must not be forked later, because the driver has started.
    """
    if torch_names.is_cuda_lost():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hides warnings of a broken driver: the user did not ask.
        num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = range(num_devices if torch_names.is_cuda_on() else 0)
    return VisibleDevices(
        asked_for=os.environ.get(VISIBLE_DEVICES),
        num_devices=num_devices,
        capabilities=tuple(torch.cuda.get_device_capability(index) for index in known),
    )


class KnownProperties:
    """Replaces a device's properties while CUDA is off: knows the compute capability, and asks torch for the rest.

    Args:
        capability: Major and minor version of the compute capability.
        ask: Gives the real properties; the call starts CUDA.
    """

    def __init__(self, capability: tuple[int, int], ask: Callable[[], Any]) -> None:
        self.major, self.minor = capability
        self._ask = ask

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_ask":
            raise AttributeError(name)
        return getattr(self._ask(), name)

    def __repr__(self) -> str:
        return repr(self._ask())


class KnownDevices:
    """Answers questions about devices in place of torch, with the probe's answers; further questions start CUDA.

    The current device is only noted until `catch_up` makes the choice real in the trial.

    Args:
        known: Answers of the probe; None = torch answers by itself.
    """

    def __init__(self, known: VisibleDevices | None) -> None:
        self._known = known
        self._current: int | None = None
        self._restore: list[Callable[[], None]] = []

    def install(self) -> None:
        """Begins to answer in place of torch."""
        if self._known is None:
            return
        owners: list[Any] = [torch.cuda]
        accelerator: Any = getattr(torch, "accelerator", None)
        if getattr(accelerator and accelerator.current_accelerator(), "type", None) == "cuda":
            owners.append(accelerator)  # Up to torch 2.11, torch.accelerator asks the driver directly.
        for owner in owners:
            self._restore.append(wrap(owner, "device_count", self._counting(int)))
            self._restore.append(wrap(owner, "is_available", self._counting(bool)))
        for name, make in (
            ("set_device", self._choosing),
            ("current_device", self._telling_current),
            ("get_device_properties", self._describing),
        ):
            self._restore.append(wrap(torch.cuda, name, make))

    def remove(self) -> None:
        """Has torch answer again, also through replaced functions that the script has kept."""
        self._known = None
        for restore in self._restore:
            restore()

    def catch_up(self) -> None:
        """Makes the device chosen by the script the current device, and starts CUDA as the choice would have done."""
        if self._current is not None:
            torch.cuda.set_device(self._current)

    def _told(self) -> VisibleDevices | None:
        """The probe's answers; None when no answers exist or the visible devices have changed since."""
        known = self._known
        # A script may hide devices after importing torch, and ask for devices both before and after.
        return known if known is not None and os.environ.get(VISIBLE_DEVICES) == known.asked_for else None

    def _counting(self, kind: type[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call() -> Any:
                known = self._told()
                return original() if known is None else kind(known.num_devices)

            return call

        return make

    def _choosing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_device(device: Any) -> None:
            index = self._index_of(device)
            # Each thread has a separate current device.
            if index is None or threading.current_thread() is not threading.main_thread():
                original(device)
            else:
                self._current = index

        return set_device

    def _telling_current(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def current_device() -> Any:
            known = self._told()
            return original() if known is None or not known.num_devices else self._current or 0

        return current_device

    def _describing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_device_properties(device: Any = None) -> Any:
            known = self._told()
            is_current = device is None or device in ("cuda", torch.device("cuda"))
            index = (self._current or 0) if is_current else self._index_of(device)
            if known is None or index is None or index >= len(known.capabilities):
                return original(device)
            return KnownProperties(known.capabilities[index], lambda: original(index))

        return get_device_properties

    def _index_of(self, device: Any) -> int | None:
        """The number of a CUDA device; None when the device has no number or is unknown to the probe."""
        known = self._told()
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            device = device.index if device.type == "cuda" else None
        is_there = known is not None and isinstance(device, int) and 0 <= device < known.num_devices
        return device if is_there else None
