"""The share of a device's multiprocessors at work between two moments, by NVML's counters for whole devices."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from autotune.host import DeviceInfo
from autotune.runner import devices as devices

SM_UTILIZATION = 2
"""NVML_GPM_METRIC_SM_UTIL: share of the multiprocessors with a running warp, in percent."""


class SmActivity:
    """Two samples of a device's counters; inert for a device, a driver or a user without these counters.

    Args:
        device: The device.
    """

    def __init__(self, device: DeviceInfo) -> None:
        self._device = device
        self._nvml: Any = None if device.is_cpu else devices.loaded_nvml()
        self._samples: list[Any] = []
        self._share: float | None = None
        if self._nvml is not None and not self._is_supported():
            self._nvml = None

    def look(self) -> None:
        """Takes a sample; the first sample stays, and each later one replaces the last."""
        if self._nvml is None:
            return
        try:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(self._device.uuid.encode())
            if len(self._samples) < 2:
                self._samples.append(self._nvml.nvmlGpmSampleAlloc())
            self._nvml.nvmlGpmSampleGet(handle, self._samples[-1])
        except (self._nvml.NVMLError, AttributeError):
            self.close()

    def share(self) -> float | None:
        """Share of the multiprocessors at work between both samples, 0 to 1; None without two samples.

        After `close`, the share read before.
        """
        if self._nvml is None or len(self._samples) < 2:
            return self._share
        try:
            asked = self._nvml.c_nvmlGpmMetricsGet_t()
            asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
            asked.numMetrics = 1
            asked.sample1, asked.sample2 = self._samples
            asked.metrics[0].metricId = SM_UTILIZATION
            self._nvml.nvmlGpmMetricsGet(asked)
            percent = float(asked.metrics[0].value)
        except (self._nvml.NVMLError, AttributeError):
            return None
        self._share = percent / 100 if 0 <= percent <= 100 else None
        return self._share

    def close(self) -> None:
        """Frees the samples."""
        nvml, self._nvml = self._nvml, None
        for sample in self._samples if nvml is not None else ():
            with suppress(nvml.NVMLError, AttributeError):
                nvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _is_supported(self) -> bool:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(self._device.uuid.encode())
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except (self._nvml.NVMLError, AttributeError):
            return False
