"""What a script's beginning is told of CUDA devices: what its probe was, so that it does not start the driver.

Nearly every script asks in its first lines whether there is a device, and no fork can use a driver that was started
before it. Asked through NVML torch spares the driver, but not in every build: some begin it all the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import torch

from autotune.model.facts import VisibleDevices
from autotune.trial import torch_names
from autotune.trial.patching import wrap

VARIABLE = "CUDA_VISIBLE_DEVICES"


def ask() -> VisibleDevices | None:
    """The devices that this process can use; None where it was forked from one that had asked before.

    Asks the driver, and is therefore for a process that is not forked from.
    """
    if torch_names.is_cuda_lost():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of a broken driver; nobody but us wants to know.
        num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return VisibleDevices(asked_for=os.environ.get(VARIABLE), num_devices=num_devices)


class KnownDevices:
    """Answers torch's two questions for devices, and nothing that needs a device: that starts CUDA.

    Args:
        known: What the probe was told; None = nothing is known, and torch is asked.
    """

    def __init__(self, known: VisibleDevices | None) -> None:
        self._known = known
        self._restore: list[Callable[[], None]] = []

    def install(self) -> None:
        """Begins to answer."""
        if self._known is None:
            return
        owners: list[Any] = [torch.cuda]
        accelerator: Any = getattr(torch, "accelerator", None)
        if getattr(accelerator and accelerator.current_accelerator(), "type", None) == "cuda":
            owners.append(accelerator)  # Up to torch 2.11 it asks the driver by itself.
        for owner in owners:
            self._restore.append(wrap(owner, "device_count", self._answering(int)))
            self._restore.append(wrap(owner, "is_available", self._answering(bool)))

    def remove(self) -> None:
        """Has torch answer again, also those who hold the functions that answered here."""
        self._known = None
        for restore in self._restore:
            restore()

    def _answering(self, kind: type[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call() -> Any:
                known = self._known
                # A script may hide devices after it has imported torch, and ask before and after that.
                if known is None or os.environ.get(VARIABLE) != known.asked_for:
                    return original()
                return kind(known.num_devices)

            return call

        return make
