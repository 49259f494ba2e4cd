"""The device that trains, seen from outside the trial: NVML for NVIDIA devices, /proc for the CPU.

NVML is asked from the tuner, which survives what a trial does. Without a driver everything here says "no CUDA device".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autotune.errors import HostError, UsageError
from autotune.host import DeviceInfo, cpu_device


def choose_device(asked: str) -> DeviceInfo:
    """The device to train on: `auto` takes the first CUDA device, or the CPU where there is none.

    Raises:
        UsageError: The text names no device.
        HostError: A CUDA device was asked for and there is none.
    """
    kind, _, index = asked.partition(":")
    if kind == "cpu" and not index:
        return cpu_device()
    if kind not in ("auto", "cuda") or (index and not index.isdigit()):
        raise UsageError(f"{asked!r} is not a device.", "Use auto, cpu, cuda or cuda:0.")
    devices = cuda_devices()
    position = int(index or 0)
    if position < len(devices):
        return devices[position]
    if kind == "auto":
        return cpu_device()
    raise HostError(
        f"--device {asked} was asked for, and this machine shows {len(devices)} CUDA devices.",
        "Check nvidia-smi, or search on the CPU with --device cpu.",
    )


def cuda_devices() -> tuple[DeviceInfo, ...]:
    """The CUDA devices that a process of ours would see, in PCI bus order; empty without a driver."""
    with _nvml() as nvml:
        if nvml is None:
            return ()
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        count = nvml.nvmlDeviceGetCount()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return tuple(_info(nvml, handle, driver) for handle in _visible(nvml, handles))


def used_bytes(device: DeviceInfo) -> int | None:
    """Memory in use on the device by anybody; None on a CPU or where NVML does not say."""
    if device.is_cpu:
        return None
    with _nvml() as nvml:
        if nvml is None:
            return None
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid.encode())
            return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        except nvml.NVMLError:
            return None


def _visible(nvml: Any, handles: list[Any]) -> list[Any]:
    """Devices in the order of CUDA_VISIBLE_DEVICES, given there by index or by (the beginning of) a UUID."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return handles
    chosen = []
    for part in (part.strip() for part in text.split(",")):
        if part.isdigit() and int(part) < len(handles):
            chosen.append(handles[int(part)])
            continue
        named = [handle for handle in handles if part and _text(nvml.nvmlDeviceGetUUID(handle)).startswith(part)]
        if not named:
            break  # CUDA stops at the first entry that it does not know.
        chosen.append(named[0])
    return chosen


def _info(nvml: Any, handle: Any, driver: str) -> DeviceInfo:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        capability: tuple[int, int] | None = (int(major), int(minor))
    except nvml.NVMLError:
        capability = None
    try:
        num_processes = len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except nvml.NVMLError:
        num_processes = 0
    return DeviceInfo(
        kind="cuda",
        name=_text(nvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        capability=capability,
        driver=driver,
        num_other_processes=num_processes,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _nvml() -> Iterator[Any]:
    """NVML, ready for calls; None where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()
