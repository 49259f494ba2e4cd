"""Chooses the target of a search: devices, memory cap, and the fingerprint of the machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.errors import HostError, UsageError
from autotune.host import (
    PROC,
    DeviceInfo,
    HostFingerprint,
    available_memory_bytes,
    cpu_device,
    fingerprint,
    has_bf16_instructions,
    shared_memory_free_bytes,
    usable_cpus,
)
from autotune.model.events import Notice, OnEvent
from autotune.model.facts import ScriptFacts
from autotune.runner.devices import choose_devices, cuda_devices, idle_beside, trained_on
from autotune.space.derive import Machine
from autotune.space.refusals import why_not_one_device
from autotune.spec import SearchSpec
from autotune.study_file.command import SEARCH, search_words
from autotune.units import MIB, format_bytes, parse_memory_cap

FREE_SHARE_OF_DEVICE = 0.9
FREE_SHARE_OF_HOST = 0.8
"""Default memory caps as shares of the free memory; the host's memory also serves other programs."""
OUTSIDE_ALLOCATOR_BYTES = 512 * MIB
"""Memory of one process for context, kernels and library handles, before the measurement by the probe."""
MARGIN_BYTES = 256 * MIB
MARGIN_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The part of a machine used by a search."""

    device: DeviceInfo
    cap_bytes: int
    usable_cpus: float
    host: HostFingerprint
    outside_allocator_bytes: int = OUTSIDE_ALLOCATOR_BYTES
    """Device memory of one process outside the caching allocator."""
    host_cap_bytes: int | None = None
    """Most host memory of a trial on a CUDA device; None on a CPU."""
    others: tuple[DeviceInfo, ...] = ()
    """Further devices, shown to the probe of a script on several devices; empty for a device named by the user."""
    has_bf16_instructions: bool = False
    """Whether the processor has instructions for bf16."""
    num_devices: int = 1
    """Number of devices shown to each trial: `device` and the first of `others`; 0 = all devices of this process."""

    @property
    def cap_fraction(self) -> float:
        """Share of the device's memory for the caching allocator, with room for the rest of a process under the cap."""
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
    def reachable_bytes(self) -> float | None:
        """Peak of a process at which the caching allocator's limit ends a trial; None on a CPU."""
        if self.device.is_cpu:
            return None
        return self.cap_fraction * self.device.total_bytes + self.outside_allocator_bytes

    @property
    def free_cap_bytes(self) -> int:
        """The default memory cap, a share of the free memory."""
        return _default_cap_bytes(self.device)

    @property
    def devices(self) -> tuple[str, ...]:
        """UUIDs of the devices shown to a trial; empty = the devices of this process."""
        return _uuids((self.device, *self.others)[: self.num_devices])

    @property
    def probe_devices(self) -> tuple[str, ...]:
        """UUIDs of the devices shown to the probe; empty = the devices of this process."""
        return _uuids((self.device, *self.others)) if self.num_devices else ()

    @property
    def machine(self) -> Machine:
        """The bounds of the search space."""
        return Machine(
            usable_cpus=self.usable_cpus,
            device=self.device,
            shm_free_bytes=shared_memory_free_bytes(),
            is_linux=platform.system() == "Linux",
        )

    def as_probed(self, facts: ScriptFacts) -> Target:
        """The same target, with the memory outside the allocator as measured by the probe."""
        measured = facts.outside_allocator_bytes
        return self if measured is None or self.device.is_cpu else replace(self, outside_allocator_bytes=measured)

    def on_cpu(self, spec: SearchSpec) -> Target:
        """The same machine, for a script on the CPU beside an unused CUDA device."""
        return make_target(spec, cpu_device())

    def where_it_trains(self, facts: ScriptFacts, spec: SearchSpec, on_event: OnEvent) -> Target:
        """The target with the devices used by the script in the probe; unexpected devices are told to the user.

        Raises:
            UsageError: One process of the script computes on several devices, or on another than the first.
        """
        if self.device.is_cpu:
            return self
        if facts.device == "cpu":
            on_event(Notice(message=_why_on_cpu(facts, self.probe_devices)))
            return self.on_cpu(spec)
        self._check_one_device(facts, spec)
        num_ranks = min(facts.world_size, 1 + len(self.others))
        if spec.num_processes_per_node > 1 or num_ranks == 1:
            return self
        message = f"The script starts {facts.world_size} processes by itself; trials train on {num_ranks} devices."
        on_event(Notice(message=message, is_warning=False))
        used = (self.device, *self.others[: num_ranks - 1])
        cap_bytes, host = _cap_bytes(spec, _with_least_room(used)), replace(self.host, num_devices=num_ranks)
        return replace(self, num_devices=num_ranks, cap_bytes=cap_bytes, host=host)

    def _check_one_device(self, facts: ScriptFacts, spec: SearchSpec) -> None:
        """Refuses a process on other devices than the first.

        Raises:
            UsageError: The process computes on another device; the hint has the lines to type.
        """
        reason = why_not_one_device(facts)
        if not reason:
            return
        raise UsageError(f"{reason}.", self._how_on_one_device(len(facts.device_numbers), spec))

    def _how_on_one_device(self, num_used: int, spec: SearchSpec) -> str:
        """The lines to type for a script with one process on `num_used` devices, or on another than the first."""
        number = [each.uuid for each in cuda_devices()].index(self.device.uuid)
        alone = shlex.join(search_words(spec.command, "--device", f"cuda:{number}"))
        if num_used == 1:
            return f"Let the script take cuda:0. Which device that is, you say: {alone}"
        hint = f"Tune it on one device, to which autotune run then keeps as well: {alone}"
        by_ranks = search_words(spec.command, "--nproc-per-node", str(num_used))
        if by_ranks[len(SEARCH)].startswith("--"):
            return hint  # The launcher of a whole command has an option of its own for the number.
        return (
            "Give each device a process of its own, where the script can train under torchrun: "
            f"{shlex.join(by_ranks)}\n{hint}"
        )


def _why_on_cpu(facts: ScriptFacts, devices: tuple[str, ...]) -> str:
    """The message on a script on the CPU beside an unused CUDA device.

    Args:
        facts: Facts of the script.
        devices: UUIDs of the devices shown to the probe.
    """
    answer = facts.cuda_devices
    if answer is not None and answer.num_devices == 0 and answer.asked_for == ",".join(devices):
        return f"The script trains on the CPU: its torch {facts.torch_version} cannot use this machine's CUDA device."
    return "The script trains on the CPU, although there is a CUDA device."


def open_target(spec: SearchSpec) -> Target:
    """The target of a search.

    Raises:
        HostError: The device is missing, or is in use by other processes without --share-gpu.
        UsageError: The memory cap is impossible.
    """
    if platform.system() != "Linux":
        raise HostError(
            f"A search watches its trials through /proc, which {platform.system()} has not.",
            "Search on Linux; a tuned config loads everywhere.",
        )
    if not (PROC / "self" / "stat").exists():
        raise HostError(
            f"A search watches its trials through {PROC}, which cannot be read here.",
            "Mount it, as in mount -t proc proc /proc; a container has it unless told otherwise.",
        )
    num_ranks = spec.num_processes_per_node
    device, *others = choose_devices(spec.device, num_ranks)
    is_chosen = len(others) == num_ranks - 1  # Otherwise ranks share devices, or follow a device by name.
    of_ranks = (device, *others) if is_chosen and not device.is_cpu else trained_on(device, num_ranks)
    num_others = sum(each.num_other_processes for each in of_ranks)
    if num_others and not spec.share_gpu:
        who = "Another process uses" if num_others == 1 else f"{num_others} other processes use"
        raise HostError(
            f"{who} {device.name}, so nothing measured there would hold.",
            f"Wait for it to end, {_another(spec)}or pass --share-gpu.",
        )
    if num_ranks == 1 and spec.device == "auto":
        others = list(idle_beside(device))
    target = make_target(spec, _with_least_room(of_ranks or (device,)))
    return replace(target, device=device, others=tuple(others), num_devices=num_ranks if is_chosen else 0)


def _with_least_room(devices: Sequence[DeviceInfo]) -> DeviceInfo:
    """The first device, with the free memory of the fullest device as the room of every rank."""
    return replace(devices[0], free_bytes=min(device.free_bytes for device in devices))


def _another(spec: SearchSpec) -> str:
    """The advice to take another device; empty without another device."""
    is_named = spec.device != "auto" and len(cuda_devices()) > spec.num_processes_per_node
    return "choose another device with --device cuda:N, " if is_named else ""


def _uuids(devices: Iterable[DeviceInfo]) -> tuple[str, ...]:
    return tuple(device.uuid for device in devices if device.uuid and device.kind == "cuda")


def make_target(spec: SearchSpec, device: DeviceInfo) -> Target:
    """The target on a device."""
    return Target(
        device=device,
        cap_bytes=_cap_bytes(spec, device),
        usable_cpus=usable_cpus(),
        host=fingerprint(device, num_devices=spec.num_processes_per_node, torch_version=_torch_version()),
        host_cap_bytes=None if device.is_cpu else int(FREE_SHARE_OF_HOST * available_memory_bytes()),
        has_bf16_instructions=has_bf16_instructions(),
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
    # The memory of the other processes cannot be used.
    return min(cap_bytes, of_what_is_free) if spec.share_gpu and not device.is_cpu else cap_bytes


def _default_cap_bytes(device: DeviceInfo) -> int:
    return int(device.free_bytes * (FREE_SHARE_OF_HOST if device.is_cpu else FREE_SHARE_OF_DEVICE))


def _torch_version() -> str:
    """Version of the installed torch, found without an import; empty without torch."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def script_digest(spec: SearchSpec) -> str:
    """SHA-256 of the script's file in hexadecimal; empty without a file, as after `-m`."""
    path = Path(spec.cwd, spec.script)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
