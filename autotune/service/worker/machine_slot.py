"""Describes the slot of a worker: the machine, the class of comparable machines, devices and cores."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autotune import __version__
from autotune.errors import HostError, UsageError
from autotune.host import DeviceInfo, HostFingerprint, cpu_device, fingerprint
from autotune.protocol.codec import to_plain
from autotune.protocol.environment import VISIBLE_DEVICES
from autotune.runner.devices import cuda_devices
from autotune.store.records import Owner

MEMORY_STEPS = 8
"""Steps of memory sizes within a factor of two: kernels reserve a different part of equal memory."""
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_DEVICE = re.compile(r"cuda:(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineSlot:
    """The part of a machine for one worker."""

    name: str
    """Default name of the worker: host and slot."""
    machine: str
    """Name of the machine, equal in all containers."""
    machine_class: str
    """Digest of the properties that must be equal for comparable trials."""
    description: dict[str, Any]
    """The properties, for people."""
    devices: tuple[str, ...]
    """UUIDs of the slot's CUDA devices; empty = the CPU."""
    cpus: tuple[int, ...]
    """Numbers of the usable cores."""
    is_whole: bool
    """Whether the slot has every visible device."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a search on this slot."""
        if self.is_whole:
            return {}
        return {VISIBLE_DEVICES: ",".join(self.devices)}


def open_slot(words: Sequence[str]) -> MachineSlot:
    """The slot of the named devices.

    Args:
        words: `cpu`, or devices such as `cuda:0`, also several in one word with commas; empty = all devices.

    Raises:
        UsageError: A word names no device.
        HostError: The machine has no such device.
    """
    visible = cuda_devices()
    named = [word.strip() for text in words for word in text.split(",")]
    if "cpu" in named and len(named) > 1:
        raise UsageError("--slot cpu stands alone.", "Start a worker of its own for each slot.")
    taken = visible if not named else tuple(_device(word, visible) for word in named if word != "cpu")
    first = taken[0] if taken else cpu_device()
    host = fingerprint(first, num_devices=max(1, len(taken)), torch_version=_version_of("torch"))
    slot = "-".join(word.replace(":", "") for word in named)
    name = _OTHER.sub("-", "-".join(filter(None, (socket.gethostname(), slot)))).strip("-.") or "worker"
    return MachineSlot(
        name=name[:100],
        machine=Owner.this_process().machine,
        machine_class=class_of(host, [device.name for device in taken]),
        description={**to_plain(host), "host": socket.gethostname(), "autotune": __version__},
        devices=tuple(device.uuid for device in taken),
        cpus=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (),
        is_whole=len(taken) == len(visible),
    )


def class_of(host: HostFingerprint, devices: Sequence[str], *, program: str = sys.executable) -> str:
    """Digest of a class of machines: equal for machines with comparable trials, and with the same interpreter path.

    Args:
        host: Fingerprint of the machine.
        devices: Names of the slot's devices.
        program: Path of the Python interpreter, which a resume of a study starts again.
    """
    properties = {
        **to_plain(host),
        "memory_bytes": round(MEMORY_STEPS * math.log2(max(1, host.memory_bytes))),
        "devices": list(devices),
        "autotune": __version__,
        "program": program,
    }
    return hashlib.sha256(json.dumps(properties, sort_keys=True).encode()).hexdigest()[:12]


def _device(word: str, visible: Sequence[DeviceInfo]) -> DeviceInfo:
    match = _DEVICE.fullmatch(word)
    if match is None:
        raise UsageError(f"--slot {word} names no device.", "Use cpu, cuda:0 or cuda:0,cuda:1.")
    if int(match[1]) >= len(visible):
        raise HostError(f"--slot {word}: this machine shows {len(visible)} CUDA devices.", "Check nvidia-smi.")
    return visible[int(match[1])]


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
