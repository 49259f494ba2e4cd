"""The diagnosis of a training script: measurements, the bottleneck, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from autotune.measure.bottleneck import BottleneckKind
from autotune.model.facts import ScriptFacts
from autotune.model.observation import Observation
from autotune.protocol.codec import to_plain
from autotune.settings import Settings

DOCUMENT_SCHEMA = 1


class Sickness(StrEnum):
    """The cause addressed by an advice."""

    LOADER = "loader"
    """Batches are built more slowly than they are trained on."""
    SMALL_FILES = "small_files"
    """Building batches is mostly opening and reading small files."""
    DECODING = "decoding"
    """Building batches is mostly decoding."""
    CHUNKS = "chunks"
    """Every sample reads a whole chunk of an HDF5 file."""
    REPEATED_WORK = "repeated_work"
    """Every epoch repeats work with the same result."""
    SINGLE_SAMPLES = "single_samples"
    """Samples in memory are taken singly, and joined again."""
    SLOW_SAMPLES = "slow_samples"
    """A few slow samples hold all others up."""
    IDLE_WORKERS = "idle_workers"
    """Workers find no shard to read."""
    EPOCH_START = "epoch_start"
    """Every epoch starts its workers anew."""
    HOST = "host"
    """The script's own code between the steps holds training up."""
    OVERHEAD = "overhead"
    """Launching the operations of a step takes longer than running the operations."""
    COPIES = "copies"
    """Batches are copied to the device while the device waits."""
    CONTENTION = "contention"
    """Workers and training step compete for the processors."""
    COMPUTE = "compute"
    """Training runs as fast as its operations."""
    DATA_PARALLEL = "data_parallel"
    """One process drives several devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """One thing to do."""

    sickness: Sickness
    action: str
    """The action, as one sentence."""
    where: str
    """The setting or the line of the user's code to change."""
    gain: float | None
    """Throughput after over throughput before; None when no measurement tells."""
    is_bound: bool = False
    """True when the gain is an upper bound, not a promise."""
    source: str
    """The source of the gain, as one sentence."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of autotune with the same effect; empty when only an edit helps."""
    disk_bytes: int | None = None
    """Bytes of new files; None without new files, or when unknown."""
    memory_bytes: int | None = None
    """Memory for the promised gain, page cache included; None without a need, or when unknown."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a gain that is none."""
        if self.gain is not None and not 1 < self.gain < 1e6:
            raise ValueError(f"advice cannot promise a gain of {self.gain!r}")

    @property
    def expected_gain(self) -> float:
        """Gain used to order advice: of an upper bound only half of the part above 1; 1 when unknown."""
        if self.gain is None:
            return 1.0
        return 1 + (self.gain - 1) / 2 if self.is_bound else self.gain


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """A script on a machine, measured once under the script's own settings."""

    script: str
    machine: str
    device: str
    is_cpu: bool
    usable_cpus: float
    samples_unit: str
    """`samples`, or `steps` when the samples per step are unknown."""
    samples_per_second: float
    interval: tuple[float, float]
    ceiling_samples_per_second: float | None
    """Compute-only rate; None without a torch DataLoader."""
    bottleneck: BottleneckKind
    data_wait_fraction: float
    samples_per_step: float
    restart_s: float | None
    """Cost of an epoch's start; None when negligible."""
    epoch_s: float | None
    device_utilization: float | None
    """Share of the window in which the device ran some kernel, by NVML; None without a GPU."""
    memory_cap_bytes: int
    peak_memory_bytes: int | None
    """Peak of the device; on a CPU, of the process and its workers."""
    peak_allocated_bytes: int | None
    """Peak of the caching allocator; None on a CPU."""
    outside_allocator_bytes: int | None
    """Device memory of the process outside its caching allocator; None on a CPU."""
    natural: Settings
    facts: ScriptFacts
    observation: Observation
    advice: tuple[Advice, ...] = ()
    """Advice in the order of expected gain, the largest first."""
    profiles: tuple[str, ...] = ()
    """Profile files for a viewer."""
    notes: tuple[str, ...] = ()
    mount: str = ""
    """Kind and source of the file system with the dataset, such as `ext4 on /dev/sda1`; empty when unknown."""
    io_pressure: float | None = None
    """Share of the window in which some task waited for storage, on the whole machine; None without a figure."""
    disk_bytes_per_s: float | None = None
    """Rate at which the trial read from storage, past the page cache; None without a figure."""

    @property
    def step_s(self) -> float:
        """Seconds of one optimizer step, measured before any observer was attached."""
        return self.samples_per_step / self.samples_per_second

    @property
    def compute_s(self) -> float | None:
        """Seconds of one optimizer step without a loader."""
        rate = self.ceiling_samples_per_second
        return None if rate is None else min(self.samples_per_step / rate, self.step_s)

    @property
    def copy_share(self) -> float | None:
        """Share of a step in which batches are copied between host and device; None when unknown."""
        device = self.observation.device
        return None if device is None else min(1.0, device.copy_s / device.num_steps / self.step_s)

    @property
    def device_share(self) -> float | None:
        """Share of a step in which the device works; None on a CPU."""
        device = self.observation.device
        return None if device is None else min(1.0, device.busy_s / device.num_steps / self.step_s)

    @property
    def host_share(self) -> float:
        """Share of a step lost to the script's own code.

        On CUDA: the time in which the device is idle without a wait for data. No CPU can run ahead of the script, so on
        a CPU the share is the time of statements besides loading, forward, backward and optimizer.
        """
        if self.device_share is not None:
            return max(0.0, 1.0 - self.device_share - self.data_wait_fraction)
        return min(1.0, sum(place.share for place in self.observation.host_places))

    def document(self) -> dict[str, Any]:
        """The document printed by `--json`."""
        observed = self.observation
        return {
            "schema": DOCUMENT_SCHEMA,
            "script": self.script,
            "machine": self.machine,
            "device": self.device,
            "samples_unit": self.samples_unit,
            "samples_per_second": self.samples_per_second,
            "interval": {"low": self.interval[0], "high": self.interval[1]},
            "ceiling_samples_per_second": self.ceiling_samples_per_second,
            "bottleneck": self.bottleneck.value,
            "data_wait_fraction": self.data_wait_fraction,
            "host_share": self.host_share,
            "copy_share": self.copy_share,
            "device_share": self.device_share,
            "device_utilization": self.device_utilization,
            "step_s": self.step_s,
            "step_shares": self._step_shares(),
            "epoch_start_s": self.restart_s,
            "memory": self._memory(),
            "num_parameters": self.facts.num_parameters,
            "num_trainable": observed.num_trainable,
            "settings": self.natural.to_dict(),
            "training_processors": observed.main_cpu_s / observed.cpu_wall_s if observed.cpu_wall_s else None,
            "loading": to_plain(observed.loading),
            "storage": to_plain(observed.storage),
            "mount": self.mount,
            "io_pressure": self.io_pressure,
            "disk_bytes_per_s": self.disk_bytes_per_s,
            "host_places": to_plain(observed.host_places),
            "larger_batch": to_plain(observed.larger_batch),
            "formats": to_plain(observed.formats),
            "optimizer": to_plain(observed.optimizer),
            "advice": [to_plain(advice) for advice in self.advice],
            "profiles": list(self.profiles),
            "notes": list(self.notes),
        }

    def _step_shares(self) -> dict[str, float]:
        steps = self.observation.steps
        return {
            "data_wait": steps.data_wait_s / steps.wall_s,
            "forward": steps.forward_s / steps.wall_s,
            "backward": steps.backward_s / steps.wall_s,
            "optimizer": steps.optimizer_s / steps.wall_s,
            "rest": steps.rest_s / steps.wall_s,
        }

    def _memory(self) -> dict[str, Any]:
        kinds = self.observation.memory
        return {
            **(to_plain(kinds) if kinds is not None else {}),
            "peak_bytes": self.peak_memory_bytes,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "outside_allocator_bytes": self.outside_allocator_bytes,
            "cap_bytes": self.memory_cap_bytes,
        }
