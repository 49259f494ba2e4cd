"""Examines the machine for obstacles to a search, and names the remedies."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from autotune.host import (
    DeviceInfo,
    available_memory_bytes,
    cpu_model,
    shared_memory_free_bytes,
    total_memory_bytes,
    usable_cpus,
)
from autotune.protocol.protection import SENTENCES, Protection, ProtectionWish
from autotune.runner import devices
from autotune.runner.devices import DeviceDetails
from autotune.sandbox.covered_folders import needed_folders
from autotune.sandbox.protection_choice import IN_A_CONTAINER, choose
from autotune.sandbox.sandbox_error import SandboxError
from autotune.units import GIB, format_bytes

LITTLE_SHARED_MEMORY_BYTES = GIB
"""Least shared memory without a warning: the 64 MiB of a container hold no queue of image batches."""
LITTLE_DISK_BYTES = 5 * GIB
"""Least temporary space without a warning: trials put checkpoints and copies of changed files there."""
LITTLE_MEMORY_SHARE = 0.25
BUSY_SHARE = 0.25
"""Largest load without a warning, as a share of the usable cores: other programs disturb every measurement."""
ASK_LIMIT_S = 120.0
ASK_TORCH = """
import json, sys
import torch
print(json.dumps({
    "torch": str(torch.__version__), "cuda_build": torch.version.cuda or "", "python": sys.version.split()[0],
    "num_devices": torch.cuda.device_count(), "is_available": torch.cuda.is_available(),
}))
"""


class Status(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """A search works, with worse figures or less speed."""
    PROBLEM = "problem"
    """A search on this machine or device does not work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One examined property of the machine."""

    name: str
    status: Status
    text: str
    """The finding, in a few words."""
    remedy: str = ""
    """Advice; empty without a problem."""


def examine() -> Iterator[Finding]:
    """All findings, one after the other; the finding on torch takes a few seconds."""
    yield _system()
    yield _cores()
    yield _load()
    yield _memory()
    yield _shared_memory()
    yield _disk()
    yield _protection()
    yield from _devices()


def _system() -> Finding:
    text = f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {cpu_model()}"
    if platform.system() == "Linux":
        return Finding(name="system", status=Status.OK, text=text)
    remedy = "Search on Linux: trials are watched through /proc. A tuned config loads everywhere."
    return Finding(name="system", status=Status.PROBLEM, text=text, remedy=remedy)


def _cores() -> Finding:
    usable, present = usable_cpus(), os.cpu_count() or 1
    text = f"{usable:g} of {present} cores are usable"
    if usable >= present:
        return Finding(name="cores", status=Status.OK, text=text)
    remedy = "An affinity mask or a quota (container, job scheduler) keeps the others. More cores feed more workers."
    return Finding(name="cores", status=Status.WARNING, text=text, remedy=remedy)


def _load() -> Finding:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    text = f"{load:.1f} tasks ran or waited in the last minute"
    if load <= BUSY_SHARE * usable_cpus():
        return Finding(name="load", status=Status.OK, text=text)
    remedy = "End what else runs here, or wait for it: rates are measured beside it otherwise."
    return Finding(name="load", status=Status.WARNING, text=text, remedy=remedy)


def _memory() -> Finding:
    available, total = available_memory_bytes(), total_memory_bytes()
    text = f"{format_bytes(available)} of {format_bytes(total)} are available"
    if available >= LITTLE_MEMORY_SHARE * total:
        return Finding(name="memory", status=Status.OK, text=text)
    return Finding(name="memory", status=Status.WARNING, text=text, remedy="End programs that hold much of it.")


def _shared_memory() -> Finding:
    free = shared_memory_free_bytes()
    if free is None:
        remedy = "Loader workers cannot hand over batches without it; mount a tmpfs there."
        return Finding(name="/dev/shm", status=Status.WARNING, text="there is none", remedy=remedy)
    text = f"{format_bytes(free)} are free"
    if free >= LITTLE_SHARED_MEMORY_BYTES:
        return Finding(name="/dev/shm", status=Status.OK, text=text)
    remedy = "Loader workers put their batches there. In a container give it more, as in docker run --shm-size=8g."
    return Finding(name="/dev/shm", status=Status.WARNING, text=text, remedy=remedy)


def _disk() -> Finding:
    try:
        place = tempfile.gettempdir()
    except FileNotFoundError:
        remedy = "What trials write goes there. Set TMPDIR to a folder on a local disk that you may write to."
        return Finding(name="disk", status=Status.PROBLEM, text="no temporary folder can be written to", remedy=remedy)
    free = shutil.disk_usage(place).free
    text = f"{format_bytes(free)} are free in {place}"
    if free >= LITTLE_DISK_BYTES:
        return Finding(name="disk", status=Status.OK, text=text)
    remedy = "What trials write goes there. Free some of it, or set TMPDIR to another local disk."
    return Finding(name="disk", status=Status.WARNING, text=text, remedy=remedy)


def _protection() -> Finding:
    """The protection of the user's files in a search here, tried over the working and the home folder."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            found = choose(ProtectionWish(), Path(scratch) / "layers", needed_folders(Path.cwd()))
    except SandboxError as error:
        return Finding(name="protection", status=Status.PROBLEM, text=error.message.rstrip("."), remedy=error.hint)
    except OSError as error:
        text = f"it cannot be tried: {error}"
        return Finding(name="protection", status=Status.WARNING, text=text, remedy="Set TMPDIR to a writable folder.")
    text = f"a search in this folder has {SENTENCES[found]}"
    if found is Protection.LAYERS:
        return Finding(name="protection", status=Status.OK, text=text)
    remedy = (
        "HDF5, LMDB, a shell and other writers past Python fail in a trial: name their place by --writable, or permit "
        f"overlay mounts; in a container by {IN_A_CONTAINER}."
    )
    return Finding(name="protection", status=Status.WARNING, text=text, remedy=remedy)


def _devices() -> Iterator[Finding]:
    found, torch = devices.cuda_devices(), _ask_torch()
    yield _torch(torch, num_devices=len(found))
    if not found:
        yield Finding(name="device", status=Status.OK, text="no NVIDIA device; searches run on the CPU")
    for info in found:
        text = f"{info.name}, {format_bytes(info.free_bytes)} of {format_bytes(info.total_bytes)} free"
        state = devices.state(info)
        reasons = ", ".join(state.reasons) if state is not None else ""
        if info.num_other_processes:
            remedy = "Wait for them, choose another with --device cuda:N, or accept it with --share-gpu."
            text = f"{text}; other processes on it: {info.num_other_processes}"
            yield Finding(name="device", status=Status.WARNING, text=text, remedy=remedy)
        elif reasons:
            remedy = "Its clock is held down now; see to cooling or power, or measure later."
            yield Finding(name="device", status=Status.WARNING, text=f"{text}; {reasons}", remedy=remedy)
        else:
            yield Finding(name="device", status=Status.OK, text=text)
        setup = devices.details(info)
        if setup is not None:
            yield _setup(info, setup)
    yield from _slower(found)


def _setup(info: DeviceInfo, setup: DeviceDetails) -> Finding:
    """Driver, clocks, link and modes of a device."""
    text = ", ".join(_setup_words(info, setup))
    if setup.pcie_width and setup.max_pcie_width and setup.pcie_width < setup.max_pcie_width:
        remedy = "Batches are copied through fewer lanes than the device has; see to the slot, or to a riser."
        return Finding(name="set-up", status=Status.WARNING, text=text, remedy=remedy)
    if setup.has_mig and not setup.is_mig:
        remedy = "Name a part by its UUID: CUDA_VISIBLE_DEVICES=MIG-..., as nvidia-smi -L shows it."
        return Finding(name="set-up", status=Status.WARNING, text=text, remedy=remedy)
    if setup.is_persistent is False:
        remedy = "The driver is loaded anew for each program; nvidia-smi -pm 1, as root, keeps it."
        return Finding(name="set-up", status=Status.WARNING, text=text, remedy=remedy)
    return Finding(name="set-up", status=Status.OK, text=text)


def _setup_words(info: DeviceInfo, setup: DeviceDetails) -> Iterator[str]:
    yield info.uuid
    if setup.is_mig or setup.has_mig:
        yield "a MIG part" if setup.is_mig else "divided into MIG parts"
    yield f"driver {info.driver}"
    if setup.nvml is not None:
        yield f"NVML {setup.nvml}"
    if setup.sm_clock_mhz is not None:
        most = f" of {setup.max_sm_clock_mhz}" if setup.max_sm_clock_mhz is not None else ""
        yield f"clock {setup.sm_clock_mhz}{most} MHz"
    if setup.pcie_width is not None:
        yield (
            f"PCIe {setup.pcie_generation} x{setup.pcie_width} of {setup.max_pcie_generation} x{setup.max_pcie_width}"
        )
    for name, is_on in (("persistence", setup.is_persistent), ("ECC", setup.has_ecc)):
        if is_on is not None:
            yield f"{name} {'on' if is_on else 'off'}"


def _slower(found: Sequence[DeviceInfo]) -> Iterator[Finding]:
    """A finding for each device that a sibling of the same name outruns: by clock, by link, or for heat."""
    remedy = "Search and train on the same one: CUDA_VISIBLE_DEVICES takes its UUID."
    for info in found:
        siblings = [other for other in found if other.name == info.name and other.uuid != info.uuid]
        texts = (_lower(info, other) for other in siblings)
        if text := next(filter(None, texts), ""):
            yield Finding(name="sibling", status=Status.WARNING, text=text, remedy=remedy)


def _lower(info: DeviceInfo, other: DeviceInfo) -> str:
    """What a device has less of than a sibling; empty for equal devices."""
    own, setup = devices.details(info), devices.details(other)
    if own is None or setup is None:
        return ""
    figures = (
        ("clock", own.max_sm_clock_mhz, setup.max_sm_clock_mhz),
        ("PCIe link", own.max_pcie_width, setup.max_pcie_width),
    )
    lower = [words for words, mine, theirs in figures if mine is not None and theirs is not None and mine < theirs]
    state, beside = devices.state(info), devices.state(other)
    held = set(state.reasons) - set(beside.reasons) if state is not None and beside is not None else set()
    if lower:
        return f"{info.uuid} has a lower {' and '.join(lower)} than {other.uuid}, of the same name"
    if held:
        return f"the clock of {info.uuid} is held down now, unlike {other.uuid}'s: {', '.join(sorted(held))}"
    return ""


def _torch(answer: dict[str, Any], *, num_devices: int) -> Finding:
    """Whether torch can use the devices of the driver."""
    if "error" in answer:
        remedy = f"Install torch for {sys.executable}, or run autotune from the environment of your script."
        return Finding(name="torch", status=Status.PROBLEM, text=str(answer["error"]), remedy=remedy)
    text = f"torch {answer['torch']} sees {answer['num_devices']} CUDA devices, the driver {num_devices}"
    if num_devices and not answer["cuda_build"]:
        remedy = "This torch was built for the CPU alone. Install a CUDA build: see pytorch.org/get-started."
        return Finding(name="torch", status=Status.PROBLEM, text=text, remedy=remedy)
    if num_devices and not answer["is_available"]:
        remedy = f"The driver is probably too old for CUDA {answer['cuda_build']}: update it, or take an older torch."
        return Finding(name="torch", status=Status.PROBLEM, text=text, remedy=remedy)
    return Finding(name="torch", status=Status.OK, text=text)


def _ask_torch() -> dict[str, Any]:
    """Facts about torch, from a process of its own: the commands never import torch."""
    command = [sys.executable, "-P", "-c", ASK_TORCH]  # -P: never import ./torch.py of the working directory.
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": f"torch does not answer: {error}"}
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()
        return {"error": f"torch cannot be imported: {lines[-1] if lines else ended.returncode}"}
    return dict(json.loads(ended.stdout.splitlines()[-1]))
