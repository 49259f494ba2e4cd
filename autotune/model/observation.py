"""A diagnosis's observation of the script's own loop after the window, read from the user's process and checked."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.model.checks import check_figures
from autotune.model.what_if import StorageTimes
from autotune.settings import Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """How the training process spent its time over some optimizer steps; the parts exclude one another."""

    num_steps: int
    wall_s: float
    data_wait_s: float
    """Time inside a loader's `next()`."""
    forward_s: float
    """Time inside the modules called by the script; on a CUDA device the time to launch them."""
    backward_s: float
    optimizer_s: float

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.num_steps < 1 or self.wall_s <= 0:
            raise ValueError("step times are of at least one step")

    @property
    def rest_s(self) -> float:
        """The script's own work between these parts, such as losses, metrics and logging."""
        known_s = self.data_wait_s + self.forward_s + self.backward_s + self.optimizer_s
        return max(0.0, self.wall_s - known_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPlace:
    """A statement of the user's code, outside training itself, that delays the training process."""

    file: str
    line: int
    """Line of the waiting call, or the first line of a statement without a call."""
    first_line: int
    last_line: int
    """Last line of the statement; the statement can be taken out of the step as a whole."""
    share: float
    """Share of a step's wall time, including everything called by the statement, 0 to 1."""
    call: str = ""
    """Operation of a statement on a tensor's value, such as `Tensor.item`; empty for all other statements."""
    calls_per_step: float = 0.0
    blocked_share: float = 0.0
    """Share of a step's wall time inside these calls, on CUDA the wait for the device."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if not (0 <= self.share <= 1 and 0 <= self.blocked_share <= 1 and self.calls_per_step >= 0):
            raise ValueError(f"shares of a step are 0 to 1, not {self.share!r} and {self.blocked_share!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadingTimes:
    """The work of building batches, over all building processes; the parts exclude one another."""

    num_batches: int
    num_samples: int
    busy_s: float
    """Wall time of building, summed over the processes."""
    cpu_s: float
    """Time of the building threads on a processor or waiting for a busy one."""
    open_s: float
    """Time to open and close files."""
    read_s: float
    decode_s: float
    """Time inside image decoders."""
    num_files: int
    read_bytes: int
    decoder: str = ""
    """Decoder with the most time; empty when none was seen."""
    num_building: int = 0
    """Processes that built a batch."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.num_batches < 1 or self.num_samples < 1 or self.busy_s <= 0:
            raise ValueError("loading times are of at least one batch")

    @property
    def rest_s(self) -> float:
        """Time of transforms, collation, and file reads outside Python."""
        return max(0.0, self.busy_s - self.open_s - self.read_s - self.decode_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetStage:
    """A stage of a tf.data dataset, by tf.data's own statistics."""

    name: str
    """The operation, such as `ParallelMap` or `Batch`."""
    busy_s: float
    """Time of the stage's own work on a batch, summed over its threads."""
    parallelism: int = 1
    """Threads of the stage."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.parallelism < 1:
            raise ValueError("a stage has at least one thread")
        if not self.name.isidentifier():
            raise ValueError(f"no stage of a dataset has the name {self.name!r:.80}")

    @property
    def batch_s(self) -> float:
        """Least time between two batches of the stage."""
        return self.busy_s / self.parallelism

    @property
    def text(self) -> str:
        """The stage in words."""
        threads = f"{self.parallelism} threads" if self.parallelism > 1 else "one thread"
        return f"{self.name}, {1000 * self.busy_s:.3g} ms of work on a batch in {threads}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryKinds:
    """Bytes kept by training, by kind; tensors that share memory count once."""

    parameters_bytes: int
    buffers_bytes: int
    gradients_bytes: int
    optimizer_state_bytes: int
    activations_bytes: int | None
    """Bytes held by autograd for the backward pass of one micro-step, beyond parameters; None when unknown."""
    batch_bytes: int

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTimes:
    """The work of a CUDA device over some optimizer steps, from torch's profiler."""

    num_steps: int
    busy_s: float
    """Time in which any kernel or copy ran."""
    copy_s: float
    """Time of copies between host and device."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.num_steps < 1:
            raise ValueError("device times are of at least one step")


@dataclass(frozen=True, kw_only=True, slots=True)
class LargerBatch:
    """The training step on a larger batch, without its loader."""

    factor: int
    own_step_s: float
    """Step time on a batch of the script's size, measured in turns with the larger batch."""
    step_s: float
    """Step time on the larger batch."""
    own_build_s: float | None = None
    """Time to build a batch of the script's size in the training process; None when workers build, or no larger batch
    exists."""
    build_s: float | None = None
    """Time to build the larger batch, measured in turns."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.factor < 2 or self.step_s <= 0 or self.own_step_s <= 0:
            raise ValueError(f"a batch {self.factor} times as large in {self.step_s} s is none")


MOST_FORMAT_RATIO, MOST_DOUBLE_RATIO = 32.0, 100.0
"""Largest ratios of times between two number formats of a device, of float32 over narrower formats and of float64 over
float32: an H100 has 15 times as many products in bfloat16, consumer devices 64 times as many in float32. More is a
broken measurement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatRatio:
    """The heaviest layers in another number format, forward and backward on copies."""

    precision: Precision
    ratio: float
    """Time in the script's format over time in `precision`: above 1 is faster."""
    num_layers: int

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        if not 0 < self.ratio < 1e6:
            raise ValueError(f"a ratio of times cannot be {self.ratio!r}")

    @property
    def is_possible(self) -> bool:
        """True when a device can be so much faster in the format."""
        return self.ratio <= (MOST_DOUBLE_RATIO if self.precision is Precision.FP32 else MOST_FORMAT_RATIO)


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerTimes:
    """One step of the optimizer and of its fused form, on copies of the parameters."""

    name: str
    place: str
    """`file:line` that builds the optimizer; empty when unknown."""
    own_s: float
    fused_s: float

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """Everything observed of one process after its window; None or empty if observation failed."""

    steps: StepTimes
    main_cpu_s: float
    """Processor time of all threads of the training process during `cpu_wall_s`."""
    cpu_wall_s: float
    host_places: tuple[HostPlace, ...] = ()
    is_sampled: bool = False
    """True when shares of statements were measured; not if the script uses the timer's signal or a training thread."""
    loading: LoadingTimes | None = None
    dataset_stages: tuple[DatasetStage, ...] = ()
    """Of a tf.data dataset, the slowest first; empty for all other data and without statistics."""
    storage: StorageTimes | None = None
    """None when the loader does not hold training up, or when samples cannot be built again."""
    storage_failure: str = ""
    """Reason why other formats and decoders could not be tried; empty otherwise."""
    memory: MemoryKinds | None = None
    device: DeviceTimes | None = None
    larger_batch: LargerBatch | None = None
    formats: tuple[FormatRatio, ...] = ()
    optimizer: OptimizerTimes | None = None
    data_parallel: bool = False
    """True when DataParallel wraps a model, one process for several devices."""
    parameter_dtype: str = ""
    """Format of most parameters, in torch's name."""
    num_trainable: int = 0
    step_place: str = ""
    """`file:line` of the script's call of `optimizer.step`."""
    forward_place: str = ""
    """`file:line` of the script's call of its model."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
