"""Devices seen from outside the trial: NVML for NVIDIA devices, /proc for the CPU.

The tuner asks NVML, because a trial may crash. Without a driver all functions here report "no CUDA device".
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import HostError, UsageError
from autotune.host import DeviceInfo, available_memory_bytes, cpu_device, total_memory_bytes
from autotune.protocol.environment import DEVICE_ORDER, PCI_ORDER, VISIBLE_DEVICES
from autotune.units import GIB

IDLE_BYTES = 512 * 1024**2
"""Most memory in use on an idle device, without the memory of the driver."""

SM_CLOCK, CORE_TEMPERATURE = 1, 0
"""NVML_CLOCK_SM and NVML_TEMPERATURE_GPU."""
THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of nvmlClocksEventReason for a lower clock under load; idleness, clocks set by a person, and synchronised
boards are left out."""


def choose_device(asked: str) -> DeviceInfo:
    """The device to train on: `auto` takes the freest CUDA device, or the CPU on a machine without CUDA devices.

    Raises:
        UsageError: The text names no device, or a number means one device here and another in CUDA.
        HostError: The text asks for a CUDA device that does not exist.
    """
    kind, _, index = asked.partition(":")
    if kind == "cpu" and not index:
        return cpu_device()
    if kind not in ("auto", "cuda") or (index and not index.isdigit()):
        raise UsageError(f"{asked!r} is not a device.", "Use auto, cpu, cuda or cuda:0.")
    _check_numbers(has_index=bool(index))
    devices = cuda_devices()
    if kind == "auto" and not index:
        return next(iter(freest(devices)), cpu_device())
    position = int(index or 0)
    if position < len(devices):
        return devices[position]
    if kind == "auto":
        return cpu_device()
    raise HostError(
        f"--device {asked} was asked for, and this machine shows {len(devices)} CUDA devices.",
        "Check nvidia-smi, or search on the CPU with --device cpu.",
    )


def _check_numbers(*, has_index: bool) -> None:
    """Refuses numbers of devices on a machine with several models, where NVML and CUDA count in different orders.

    Args:
        has_index: Whether the user chose among the visible devices by number.

    Raises:
        UsageError: A number was given, by the user's choice or by CUDA_VISIBLE_DEVICES.
    """
    words = [word.strip() for word in os.environ.get(VISIBLE_DEVICES, "").split(",")]
    numbers = {int(word) for word in words if word.isdecimal()}
    has_names = VISIBLE_DEVICES in os.environ and not numbers
    if os.environ.get(DEVICE_ORDER) == PCI_ORDER or has_names or not (numbers or has_index):
        return
    models = _models()
    if len(set(models)) > 1 and (has_index or numbers != set(range(len(models)))):
        raise UsageError(
            f"This machine has GPUs of several models ({', '.join(sorted(set(models)))}), which nvidia-smi and CUDA "
            "count in different orders, so a number may mean either.",
            f"Name the GPU as nvidia-smi -L does, {VISIBLE_DEVICES}=GPU-..., without a number for --device; or let "
            f"CUDA count as nvidia-smi does, {DEVICE_ORDER}={PCI_ORDER}.",
        )


def _models() -> list[str]:
    """Models of all CUDA devices of the machine, visible or not; empty without a driver."""
    nvml = loaded_nvml()
    if nvml is None:
        return []
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [_text(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    except nvml.NVMLError:
        return []


def freest(devices: Iterable[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """The devices in order of preference: unused, idle, with a clock that is not held down, with most free memory.

    Equally free devices keep their order.
    """
    return tuple(sorted(devices, key=_occupation))


def _occupation(device: DeviceInfo) -> tuple[int, float, bool, int]:
    """Use of a device by others; free memory counts in whole GiB, since the driver's share varies a little."""
    seen = state(device)
    utilization = seen.utilization if seen is not None and device.num_other_processes else None
    is_held_down = seen is not None and bool(seen.reasons)
    return device.num_other_processes, round(utilization or 0.0, 1), is_held_down, -(device.free_bytes // GIB)


def choose_devices(asked: str, num_devices: int) -> tuple[DeviceInfo, ...]:
    """The devices for several processes: `auto` takes the freest, in the order of the visible devices.

    The result is shorter on a machine with fewer devices. A device named by the user is the only result.

    Raises:
        UsageError: The text names no device, or a number means one device here and another in CUDA.
        HostError: The text asks for a CUDA device that does not exist.
    """
    chosen = choose_device(asked)
    if asked != "auto" or num_devices == 1 or chosen.is_cpu:
        return (chosen,)
    visible = cuda_devices()
    taken = {device.uuid for device in freest(visible)[:num_devices]}
    return tuple(device for device in visible if device.uuid in taken)


def idle_beside(device: DeviceInfo) -> tuple[DeviceInfo, ...]:
    """Unused visible devices, without this device."""
    if device.is_cpu:
        return ()
    return tuple(each for each in cuda_devices() if each.uuid != device.uuid and not each.num_other_processes)


def visible_devices(uuids: Sequence[str]) -> tuple[DeviceInfo, ...]:
    """The visible devices with these UUIDs, in the order of the UUIDs."""
    known = {device.uuid: device for device in cuda_devices()} if uuids else {}
    return tuple(known[uuid] for uuid in uuids if uuid in known)


def cuda_devices() -> tuple[DeviceInfo, ...]:
    """The CUDA devices visible to a child of this process, in PCI bus order; empty without a driver."""
    nvml = loaded_nvml()
    if nvml is None:
        return ()
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return tuple(_info(nvml, handle, driver) for handle in _visible(nvml, handles))
    except nvml.NVMLError:
        return ()  # A lost device makes all of CUDA unusable.


def used_bytes(device: DeviceInfo) -> int | None:
    """Memory in use on the device by all processes; None on a CPU or without an answer of NVML."""
    nvml = None if device.is_cpu else loaded_nvml()
    if nvml is None:
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid.encode())
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    except nvml.NVMLError:
        return None


def trained_on(device: DeviceInfo, num_devices: int) -> tuple[DeviceInfo, ...]:
    """The devices of a trial with `num_devices` ranks: the device alone, or the first visible devices."""
    if device.is_cpu:
        return ()
    return (device,) if num_devices == 1 else cuda_devices()[:num_devices] or (device,)


def processes(device: DeviceInfo) -> dict[int, int]:
    """Bytes by process id of the processes that compute on a device, 0 without a figure.

    The ids are the host's, and meaningless in a container.
    """
    nvml = None if device.is_cpu else loaded_nvml()
    if nvml is None:
        return {}
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid.encode())
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return {}
    return {int(process.pid): int(process.usedGpuMemory or 0) for process in running}


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceState:
    """A device at one moment; None for figures that NVML lacks, as for the utilization of a part of a device."""

    utilization: float | None
    """Share of the last moments with a running kernel: a sign of life, and no measure of load."""
    sm_clock_mhz: float | None
    temperature_c: float | None
    reasons: tuple[str, ...]
    """Reasons for a lowered clock."""
    power_w: float | None = None


def _nvml_and_handle(device: DeviceInfo) -> tuple[Any, Any] | None:
    """NVML and the handle of a device; None on a CPU, or for a device unknown to NVML."""
    nvml = None if device.is_cpu else loaded_nvml()
    if nvml is None:
        return None
    try:
        return nvml, nvml.nvmlDeviceGetHandleByUUID(device.uuid.encode())
    except nvml.NVMLError:
        return None


def state(device: DeviceInfo) -> DeviceState | None:
    """The state of a device; None on a CPU, or for a device unknown to NVML."""
    found = _nvml_and_handle(device)
    if found is None:
        return None
    nvml, handle = found
    utilization = _asked(nvml, "nvmlDeviceGetUtilizationRates", handle)
    reasons = _asked(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = _asked(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)  # The name in older drivers.
    milliwatts = _asked(nvml, "nvmlDeviceGetPowerUsage", handle)
    return DeviceState(
        utilization=None if utilization is None else utilization.gpu / 100,
        sm_clock_mhz=_asked(nvml, "nvmlDeviceGetClockInfo", handle, SM_CLOCK),
        temperature_c=_asked(nvml, "nvmlDeviceGetTemperature", handle, CORE_TEMPERATURE),
        power_w=None if milliwatts is None else milliwatts / 1000,
        reasons=tuple(name for bit, name in THROTTLE_REASONS.items() if int(reasons or 0) & bit),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceDetails:
    """How a device is set up; None for answers that NVML lacks."""

    nvml: str | None = None
    """Version of the library."""
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    pcie_generation: int | None = None
    """Generation of the link now; an idle device lowers the generation."""
    max_pcie_generation: int | None = None
    pcie_width: int | None = None
    """Lanes of the link now."""
    max_pcie_width: int | None = None
    is_persistent: bool | None = None
    """Whether the driver stays loaded without a process on the device."""
    has_ecc: bool | None = None
    is_mig: bool = False
    """Whether the device is a part of a larger device."""
    has_mig: bool | None = None
    """Whether the device is divided into parts."""


def details(device: DeviceInfo) -> DeviceDetails | None:
    """The set-up of a device; None on a CPU, or for a device unknown to NVML."""
    found = _nvml_and_handle(device)
    if found is None:
        return None
    nvml, handle = found
    version = _asked(nvml, "nvmlSystemGetNVMLVersion")
    persistence = _asked(nvml, "nvmlDeviceGetPersistenceMode", handle)
    ecc = _asked(nvml, "nvmlDeviceGetEccMode", handle)
    mig = _asked(nvml, "nvmlDeviceGetMigMode", handle)
    return DeviceDetails(
        nvml=None if version is None else _text(version),
        sm_clock_mhz=_asked(nvml, "nvmlDeviceGetClockInfo", handle, SM_CLOCK),
        max_sm_clock_mhz=_asked(nvml, "nvmlDeviceGetMaxClockInfo", handle, SM_CLOCK),
        pcie_generation=_asked(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
        max_pcie_generation=_asked(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width=_asked(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
        max_pcie_width=_asked(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
        is_persistent=None if persistence is None else bool(persistence),
        has_ecc=None if ecc is None else bool(ecc[0]),
        is_mig=device.uuid.startswith("MIG-"),
        has_mig=None if mig is None else bool(mig[0]),
    )


def _asked(nvml: Any, name: str, *arguments: Any) -> Any:
    """One answer of NVML; None without an answer of this driver for this device."""
    try:
        return getattr(nvml, name)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _visible(nvml: Any, handles: list[Any]) -> list[Any]:
    """Devices in the order of CUDA_VISIBLE_DEVICES, a list of indices and beginnings of UUIDs.

    A device divided into MIG parts stands for its parts: no process can use the whole.
    """
    text = os.environ.get(VISIBLE_DEVICES)
    if text is None:
        return [part for handle in handles for part in _parts(nvml, handle)]
    chosen: list[Any] = []
    for part in (part.strip() for part in text.split(",")):
        if part.isdigit() and int(part) < len(handles):
            chosen += _parts(nvml, handles[int(part)])[:1]  # By a number CUDA shows the first part alone.
            continue
        if part.startswith("MIG-"):
            named = [handle] if (handle := _asked(nvml, "nvmlDeviceGetHandleByUUID", part.encode())) else []
        else:
            named = [handle for handle in handles if part and _text(nvml.nvmlDeviceGetUUID(handle)).startswith(part)]
        if not named:
            break  # CUDA stops at the first unknown entry.
        chosen += _parts(nvml, named[0])[:1]
    return chosen


def _parts(nvml: Any, handle: Any) -> list[Any]:
    """The MIG parts of a divided device; the device itself where it is whole."""
    mode = _asked(nvml, "nvmlDeviceGetMigMode", handle)
    if mode is None or not mode[0]:
        return [handle]
    most = _asked(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    parts = (_asked(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(most))
    return [part for part in parts if part is not None]


def _info(nvml: Any, handle: Any, driver: str) -> DeviceInfo:
    total_bytes, free_bytes = _memory(nvml, handle)
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        capability: tuple[int, int] | None = (int(major), int(minor))
    except nvml.NVMLError:
        capability = None
    return DeviceInfo(
        kind="cuda",
        name=_text(nvml.nvmlDeviceGetName(handle)),
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        capability=capability,
        driver=driver,
        num_other_processes=_num_processes(nvml, handle),
    )


def _num_processes(nvml: Any, handle: Any) -> int:
    """Processes that compute on a device; 1 for memory in use without a visible process, as between containers."""
    try:
        num_processes = len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        if num_processes or nvml.nvmlDeviceGetGraphicsRunningProcesses(handle):
            return num_processes
        used = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used
    except (nvml.NVMLError, AttributeError):
        return 0  # Older drivers lack the second version of the call, and count their own memory as used.
    return int(used > IDLE_BYTES)


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """Total and free bytes; the host's for a device without memory of its own."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        return total_memory_bytes(), available_memory_bytes()
    return int(memory.total), int(memory.free)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@functools.cache
def loaded_nvml() -> Any:
    """NVML, ready for calls until the end of this process; None without a driver.

    The tuner asks NVML ten times a second during a trial. Measured: 20 us for a call, 3 ms or more to start and stop.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
