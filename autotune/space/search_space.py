"""The search space of a script on a machine: allowed values, refusals, and the encoding for Optuna."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from autotune.settings import Settings, Value
from autotune.settings.compile_mode import GRAPHS

SPLIT = "split"
"""In fixed mode batch_size and grad_accum_steps are one parameter: an index into the divisors of the batch."""
KNOB_PREFIX = "knobs."
SCRIPTS_OWN = ""
"""Value of a knob left to the script."""

FREE_BATCH_SIZES = tuple(2**power for power in range(15))
FREE_ACCUMULATION = (1, 2, 4, 8, 16, 32)
SHM_SAFETY = 1.2
"""Factor on batches in /dev/shm: torch keeps a few beyond its queues (measured: loaders failed within 20 % of the
count)."""


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Settings that a search may try.

    `domains` is static, for Optuna. `allowed` is the part permitted by script, machine and user, in the same order,
    never empty. `refused` gives the reasons for the rest.
    """

    script_settings: Settings
    domains: Mapping[str, tuple[Value, ...]]
    allowed: Mapping[str, tuple[Value, ...]]
    refused: tuple[tuple[str, str], ...]
    device_is_cpu: bool
    world_size: int = 1
    batch_per_device: int | None = None
    """Samples per optimizer step on one device in fixed mode; None when the batch is free or unknown."""
    has_asked_batches: bool = False
    """Whether the user named the micro-batches or the accumulation to try."""
    shm_free_bytes: int | None = None
    sample_bytes: float = 0.0
    """Bytes of a sample in the loader's batches; bytes of a batch when the number of samples is unknown."""

    def __post_init__(self) -> None:
        """Refuses allowed values outside of the domains."""
        if self.domains.keys() != self.allowed.keys():
            raise ValueError("domains and allowed name different parameters")
        for name, values in self.allowed.items():
            if not values or any(value not in self.domains[name] for value in values):
                raise ValueError(f"{name}: allowed {values} is not a part of {self.domains[name]}")

    @property
    def searched(self) -> tuple[str, ...]:
        """Parameters with more than one allowed value."""
        return tuple(name for name, values in self.allowed.items() if len(values) > 1)

    @property
    def num_settings(self) -> int:
        """Combinations of allowed values; inert values count separately."""
        return math.prod(len(values) for values in self.allowed.values())

    def settings(self, params: Mapping[str, Any]) -> Settings:
        """Canonical settings of Optuna's parameters; a missing parameter keeps the script's own value."""
        changes: dict[str, Any] = {}
        knobs = dict(self.script_settings.knobs)
        for name, value in params.items():
            if name == SPLIT:
                micro_batch = self.divisors[int(value)]
                changes.update(batch_size=micro_batch, grad_accum_steps=self._batch() // micro_batch)
            elif name.startswith(KNOB_PREFIX):
                knobs[name.removeprefix(KNOB_PREFIX)] = str(value)
            else:
                changes[name] = value
        changes["knobs"] = tuple(knobs.items())
        return replace(self.script_settings, **changes).canonical(device_is_cpu=self.device_is_cpu)

    def params(self, settings: Settings) -> dict[str, Value]:
        """Optuna's parameters of settings: the inverse of `settings()` for canonical settings."""
        params: dict[str, Value] = {}
        for name in self.domains:
            if name == SPLIT:
                params[name] = self.divisors.index(settings.batch_size or 0)
            elif name.startswith(KNOB_PREFIX):
                params[name] = dict(settings.knobs).get(name.removeprefix(KNOB_PREFIX), SCRIPTS_OWN)
            else:
                value = getattr(settings, name)
                params[name] = str(value.value) if isinstance(value, StrEnum) else value
        return params

    def told_params(self, settings: Settings) -> dict[str, Value]:
        """Optuna's parameters of a trial: the searched ones, and others with a value other than the script's own.

        `settings()` of these parameters gives the same settings. Optuna writes a parameter by three statements, each a
        round trip to a distant database.
        """
        own, searched = self.params(self.script_settings), set(self.searched)
        params = self.params(settings)
        return {name: value for name, value in params.items() if name in searched or value != own[name]}

    def why_not(self, settings: Settings) -> str | None:
        """Why settings may not be tried, as one sentence; None when allowed."""
        canonical = settings.canonical(device_is_cpu=self.device_is_cpu)
        if canonical == self.script_settings.canonical(device_is_cpu=self.device_is_cpu):
            return None
        try:
            params = self.params(canonical)
        except ValueError:
            return f"batch_size {settings.batch_size} does not divide the effective batch."
        known = {name for name, _ in self.script_settings.knobs} | {
            name.removeprefix(KNOB_PREFIX) for name in self.domains
        }
        for name, _ in canonical.knobs:
            if name not in known:
                return f"The knob {name} is not in the search space."
        inert = self.params(self.script_settings.canonical(device_is_cpu=self.device_is_cpu))
        for name, value in params.items():
            if value not in self.allowed[name] and not (name in canonical.inert or value == inert.get(name)):
                return f"{name} = {value} is not in the search space."
        has_graphs = canonical.compile and canonical.compile_mode in GRAPHS
        reason = why_no_graphs(canonical.grad_accum_steps) if has_graphs else ""
        return f"compile_mode = {canonical.compile_mode}: {reason}." if reason else self._shared_memory_lack(canonical)

    @property
    def divisors(self) -> tuple[int, ...]:
        """Micro-batches that divide the batch of one device, in rising order."""
        return divisors_of(self._batch())

    def _batch(self) -> int:
        if self.batch_per_device is None:
            raise ValueError("this space has no fixed batch")
        return self.batch_per_device

    def _shared_memory_lack(self, settings: Settings) -> str | None:
        """Why the batches do not fit into /dev/shm, as one sentence; None when they fit.

        Each rank's loader holds W x P batches in its queues, W in the making and about two in the rank's process.
        """
        if self.shm_free_bytes is None or settings.num_workers == 0:
            return None
        of_rank = settings.num_workers * settings.prefetch_factor + settings.num_workers + 2
        num_batches = self.world_size * of_rank
        need_bytes = num_batches * (settings.batch_size or 1) * self.sample_bytes * SHM_SAFETY
        if need_bytes <= self.shm_free_bytes:
            return None
        return f"{num_batches} batches need {need_bytes:.0f} bytes of /dev/shm, {self.shm_free_bytes} are free."

    def fingerprint(self) -> dict[str, Any]:
        """Identity of a space across studies: parameters with domains, baseline and batch."""
        return {
            "domains": {name: list(values) for name, values in self.domains.items()},
            "natural": self.script_settings.to_dict(),
            "batch_per_device": self.batch_per_device,
            "world_size": self.world_size,
        }


def why_no_graphs(num_backwards: int) -> str:
    """Why CUDA graphs cannot run with so many backward passes per optimizer step; empty when they can.

    The gradients of a model with CUDA graphs lie in memory of the graph. The next pass overwrites that memory before
    the gradients are added up: torch raises an error, or adds wrong gradients without a word (torch's issues 169545 and
    96693).
    """
    if num_backwards <= 1:
        return ""
    return f"gradients add up over {num_backwards} backward passes, and a CUDA graph overwrites its gradients"


@lru_cache
def divisors_of(number: int) -> tuple[int, ...]:
    """All divisors of a whole number above 0, in rising order."""
    return tuple(value for value in range(1, number + 1) if number % value == 0)
