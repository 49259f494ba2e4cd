"""Changes the number format of a script's own autocast regions.

The script opens and closes its regions as before, with another format. Under bf16 the script's GradScaler stands aside:
a disabled scaler returns losses unscaled and steps at once. The scaler's state is stored and loaded as ever, and a
checkpoint serves runs of all formats.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from autotune.settings import Precision
from autotune.trial.step.autocast import DTYPES
from autotune.trial.step.class_families import wrap_family
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap

SCALING = ("scale", "unscale_", "step", "update", "get_scale")
"""Methods of a GradScaler that a disabled scaler leaves out."""
STORING = ("state_dict", "load_state_dict", "__getstate__")
"""Methods of a GradScaler for reading and writing the state; a disabled scaler has no state."""


class OwnAutocast:
    """The script's own regions under another format.

    Args:
        device: Type of the training device; regions for other devices stay.
        precision: The format, bf16 or fp16.
    """

    def __init__(self, device: str, precision: Precision) -> None:
        self._device, self._dtype = device, DTYPES[precision]
        self._needs_no_scaler = precision is Precision.BF16
        self._aside: weakref.WeakSet[Any] = weakref.WeakSet()
        """Scalers of the script set aside; enabled only during the storing or loading of the state."""
        self._is_over = False

    def install(self) -> None:
        """Attaches to autocast regions, and to the script's scaler where the format needs no scaler."""
        wrap(torch.amp.autocast, "__enter__", self._wrap_enter)
        if self._needs_no_scaler:
            wrap_family(torch.amp.GradScaler, SCALING, self._wrap_scaling)
            wrap_family(torch.amp.GradScaler, STORING, self._wrap_storing)

    def take_back(self) -> None:
        """Lets the scalers scale again."""
        self._is_over = True  # Wrappers of classes that were first built later stay.
        for scaler in tuple(self._aside):
            torch_names.enable_scaler(scaler, is_on=True)
        self._aside.clear()

    def _wrap_enter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(region: Any) -> Any:
            if region.device != self._device or region.fast_dtype not in DTYPES.values():
                return original(region)
            own, region.fast_dtype = region.fast_dtype, self._dtype
            try:
                return original(region)
            finally:
                region.fast_dtype = own

        return enter

    def _wrap_scaling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            if scaler.is_enabled() and scaler not in self._aside and not self._is_over:
                torch_names.enable_scaler(scaler, is_on=False)
                self._aside.add(scaler)
            return original(scaler, *args, **kwargs)

        return call

    def _wrap_storing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            is_within = scaler.is_enabled() and scaler in self._aside
            is_off = not scaler.is_enabled() and scaler not in self._aside
            if self._is_over or is_within or is_off:
                return original(scaler, *args, **kwargs)
            self._aside.add(scaler)  # First: torch reads the state by `get_scale`.
            torch_names.enable_scaler(scaler, is_on=True)
            try:
                return original(scaler, *args, **kwargs)
            finally:
                torch_names.enable_scaler(scaler, is_on=False)

        return call
