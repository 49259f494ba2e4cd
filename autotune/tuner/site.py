"""Where a search happens: the device, the cap on its memory, the machine's fingerprint, the study's workspace."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import HostError, UsageError
from autotune.host import (
    DeviceInfo,
    HostFingerprint,
    cpu_device,
    fingerprint,
    shared_memory_free_bytes,
    usable_cpus,
)
from autotune.plain import from_plain, to_plain
from autotune.runner.device import choose_device
from autotune.space.derive import Machine
from autotune.spec import SearchSpec
from autotune.units import MIB, format_bytes, parse_memory_cap

FREE_SHARE_OF_DEVICE = 0.9
FREE_SHARE_OF_HOST = 0.8
"""Default caps, of what is free: the host's memory is also everybody else's."""
OUTSIDE_ALLOCATOR_BYTES = 512 * MIB
"""Context, kernels and library handles of one process, until the trial itself has measured them."""
MARGIN_BYTES = 256 * MIB
MARGIN_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """One machine, as far as a search depends on it."""

    device: DeviceInfo
    cap_bytes: int
    usable_cpus: float
    host: HostFingerprint

    @property
    def cap_fraction(self) -> float:
        """Share of the device's memory for the caching allocator, so that the whole stays under the cap."""
        if self.device.is_cpu:
            return 1.0
        margin = max(MARGIN_BYTES, int(MARGIN_SHARE * self.cap_bytes))
        usable = self.cap_bytes - OUTSIDE_ALLOCATOR_BYTES - margin
        if usable <= 0:
            raise UsageError(
                f"A memory cap of {format_bytes(self.cap_bytes)} leaves nothing beside the CUDA context.",
                f"Give at least {format_bytes(2 * (OUTSIDE_ALLOCATOR_BYTES + margin))}.",
            )
        return min(1.0, usable / self.device.total_bytes)

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that the trial may see; empty = as inherited, which is right for one and for all."""
        return (self.device.uuid,) if self.device.uuid and self.device.kind == "cuda" else ()

    @property
    def machine(self) -> Machine:
        """What bounds the search space."""
        return Machine(
            usable_cpus=self.usable_cpus,
            device=self.device,
            shm_free_bytes=shared_memory_free_bytes(),
            is_linux=platform.system() == "Linux",
        )

    def on_cpu(self, spec: SearchSpec) -> Site:
        """The same machine, for a script that trains on the CPU although there is a better device."""
        return make_site(spec, cpu_device())


def open_site(spec: SearchSpec) -> Site:
    """The site of a search.

    Raises:
        HostError: The device is not there, or is in use by others and sharing was not allowed.
        UsageError: The cap cannot be.
    """
    if platform.system() != "Linux":
        raise HostError(
            f"A search watches its trials through /proc, which {platform.system()} has not.",
            "Search on Linux; a tuned config loads everywhere.",
        )
    device = choose_device(spec.device)
    if device.num_other_processes and not spec.share_gpu:
        raise HostError(
            f"{device.num_other_processes} other processes use {device.name}, so nothing measured there would hold.",
            "Wait for them, choose another device with --device cuda:N, or pass --share-gpu.",
        )
    return make_site(spec, device)


def make_site(spec: SearchSpec, device: DeviceInfo) -> Site:
    """The site with that device."""
    return Site(
        device=device,
        cap_bytes=_cap_bytes(spec.memory_cap, device),
        usable_cpus=usable_cpus(),
        host=fingerprint(device, num_devices=spec.num_processes_per_node, torch_version=_torch_version()),
    )


def _cap_bytes(text: str | None, device: DeviceInfo) -> int:
    if text is None:
        return int(device.free_bytes * (FREE_SHARE_OF_HOST if device.is_cpu else FREE_SHARE_OF_DEVICE))
    cap_bytes = parse_memory_cap(text, device.total_bytes)
    if cap_bytes > device.total_bytes:
        raise UsageError(
            f"--memory-cap {text} is more than the {format_bytes(device.total_bytes)} of {device.name}.",
            "Give less, or a percentage such as 80%.",
        )
    return cap_bytes


def _torch_version() -> str:
    """The installed torch, without importing it."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def script_digest(spec: SearchSpec) -> str:
    """SHA-256 of the script's file in hexadecimal; empty where there is none, as after `-m`."""
    path = Path(spec.cwd, spec.script)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def study_fingerprint(spec: SearchSpec, site: Site) -> dict[str, Any]:
    """What must be the same for trials to belong to one study."""
    return {
        "script": script_digest(spec),
        "arguments": hashlib.sha256("\0".join(spec.command[1:]).encode()).hexdigest(),
        "cwd": os.path.realpath(spec.cwd),
        "host": to_plain(site.host),
        "effective_batch": spec.effective_batch,
        "memory_cap": spec.memory_cap,
    }


def what_changed(stored: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
    """Sentences that say how a study's circumstances differ from today's; empty when trials can be added."""
    lines = []
    if stored.get("script") != now["script"]:
        lines.append("the script's file has changed")
    if stored.get("arguments") != now["arguments"]:
        lines.append("the command has changed")
    host = from_plain(HostFingerprint, stored["host"])
    lines.extend(from_plain(HostFingerprint, now["host"]).differences(host))
    return tuple(lines)
