"""Where a search happens: the device, the cap on its memory, the machine's fingerprint, the study's workspace."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.errors import HostError, UsageError
from autotune.host import (
    DeviceInfo,
    HostFingerprint,
    available_memory_bytes,
    cpu_device,
    fingerprint,
    shared_memory_free_bytes,
    usable_cpus,
)
from autotune.model.events import Event, Notice
from autotune.model.facts import ScriptFacts
from autotune.runner.device import choose_device, trained_on
from autotune.space.derive import Machine
from autotune.spec import SearchSpec
from autotune.units import MIB, format_bytes, parse_memory_cap

FREE_SHARE_OF_DEVICE = 0.9
FREE_SHARE_OF_HOST = 0.8
"""Default caps, of what is free: the host's memory is also everybody else's."""
OUTSIDE_ALLOCATOR_BYTES = 512 * MIB
"""Context, kernels and library handles of one process, until the probe has measured them."""
MARGIN_BYTES = 256 * MIB
MARGIN_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """One machine, as far as a search depends on it."""

    device: DeviceInfo
    cap_bytes: int
    usable_cpus: float
    host: HostFingerprint
    outside_allocator_bytes: int = OUTSIDE_ALLOCATOR_BYTES
    """Device memory of one process that its caching allocator knows nothing of."""
    host_cap_bytes: int | None = None
    """Most host memory of a trial on a device of its own; None on a CPU."""

    @property
    def cap_fraction(self) -> float:
        """Share of the device's memory for the caching allocator, so that the whole stays under the cap."""
        if self.device.is_cpu:
            return 1.0
        margin = max(MARGIN_BYTES, int(MARGIN_SHARE * self.cap_bytes))
        usable = self.cap_bytes - self.outside_allocator_bytes - margin
        if usable <= 0:
            raise UsageError(
                f"A memory cap of {format_bytes(self.cap_bytes)} leaves nothing beside the CUDA context.",
                f"Give at least {format_bytes(2 * (self.outside_allocator_bytes + margin))}.",
            )
        return min(1.0, usable / self.device.total_bytes)

    @property
    def free_cap_bytes(self) -> int:
        """The cap where the user gives none: a share of what is free."""
        return _default_cap_bytes(self.device)

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

    def as_probed(self, facts: ScriptFacts) -> Site:
        """The same site, with what the script's own process was seen to hold outside the allocator."""
        measured = facts.outside_allocator_bytes
        return self if measured is None or self.device.is_cpu else replace(self, outside_allocator_bytes=measured)

    def on_cpu(self, spec: SearchSpec) -> Site:
        """The same machine, for a script that trains on the CPU although there is a better device."""
        return make_site(spec, cpu_device())

    def where_it_trains(self, facts: ScriptFacts, spec: SearchSpec, on_event: Callable[[Event], None]) -> Site:
        """The site that the script trains at: the CPU where it does so whatever devices there are, which is told."""
        if facts.device != "cpu" or self.device.is_cpu:
            return self
        on_event(Notice(message=_why_on_cpu(facts, self.devices)))
        return self.on_cpu(spec)


def _why_on_cpu(facts: ScriptFacts, devices: tuple[str, ...]) -> str:
    """What to tell of a script that trains on the CPU of a machine with a CUDA device.

    Args:
        facts: Of the script.
        devices: The devices that its probe was shown.
    """
    seen = facts.cuda_devices
    if seen is not None and seen.num_devices == 0 and seen.asked_for == ",".join(devices):
        return f"The script trains on the CPU: its torch {facts.torch_version} cannot use this machine's CUDA device."
    return "The script trains on the CPU, although there is a CUDA device."


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
    of_ranks = trained_on(device, spec.num_processes_per_node)
    num_others = sum(each.num_other_processes for each in of_ranks)
    if num_others and not spec.share_gpu:
        who = "Another process uses" if num_others == 1 else f"{num_others} other processes use"
        raise HostError(
            f"{who} {device.name}, so nothing measured there would hold.",
            "Wait for it to end, choose another device with --device cuda:N, or pass --share-gpu.",
        )
    # Every rank has the same cap, so the device with the least room sets it.
    return make_site(spec, replace(device, free_bytes=min((d.free_bytes for d in of_ranks), default=device.free_bytes)))


def make_site(spec: SearchSpec, device: DeviceInfo) -> Site:
    """The site with that device."""
    return Site(
        device=device,
        cap_bytes=_cap_bytes(spec, device),
        usable_cpus=usable_cpus(),
        host=fingerprint(device, num_devices=spec.num_processes_per_node, torch_version=_torch_version()),
        host_cap_bytes=None if device.is_cpu else int(FREE_SHARE_OF_HOST * available_memory_bytes()),
    )


def _cap_bytes(spec: SearchSpec, device: DeviceInfo) -> int:
    text = spec.memory_cap
    of_what_is_free = _default_cap_bytes(device)
    if text is None:
        return of_what_is_free
    cap_bytes = parse_memory_cap(text, device.total_bytes)
    if cap_bytes > device.total_bytes:
        raise UsageError(
            f"--memory-cap {text} is more than the {format_bytes(device.total_bytes)} of {device.name}.",
            "Give less, or a percentage such as 80%.",
        )
    # Beside another process a cap above what that leaves would be none.
    return min(cap_bytes, of_what_is_free) if spec.share_gpu and not device.is_cpu else cap_bytes


def _default_cap_bytes(device: DeviceInfo) -> int:
    return int(device.free_bytes * (FREE_SHARE_OF_HOST if device.is_cpu else FREE_SHARE_OF_DEVICE))


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
