"""What a diagnosis saw of a script's own loop after the window; read from the user's process, and checked."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.model.checks import check_figures
from autotune.settings import Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """Where the process that trains spent its time over some optimizer steps; the parts exclude one another."""

    num_steps: int
    wall_s: float
    data_wait_s: float
    """Inside a loader's `next()`."""
    forward_s: float
    """Inside the modules that the script calls; on a CUDA device the time to launch them."""
    backward_s: float
    optimizer_s: float

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.num_steps < 1 or self.wall_s <= 0:
            raise ValueError("step times are of at least one step")

    @property
    def rest_s(self) -> float:
        """What remains: the script's own work between these, as losses, metrics and logging."""
        known_s = self.data_wait_s + self.forward_s + self.backward_s + self.optimizer_s
        return max(0.0, self.wall_s - known_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPlace:
    """A statement of the user's code, beside the training itself, that holds the training process up."""

    file: str
    line: int
    """Of the call that waits; of a statement without one its first."""
    first_line: int
    last_line: int
    """The statement that can be taken out of the step as a whole."""
    share: float
    """Of the wall time of a step, inclusive of all that the statement calls, 0 to 1."""
    call: str = ""
    """What there reads a tensor's value, such as `Tensor.item`; empty where nothing does."""
    calls_per_step: float = 0.0
    blocked_share: float = 0.0
    """Of the wall time of a step, inside these calls: on CUDA the wait for the device."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if not (0 <= self.share <= 1 and 0 <= self.blocked_share <= 1 and self.calls_per_step >= 0):
            raise ValueError(f"shares of a step are 0 to 1, not {self.share!r} and {self.blocked_share!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadingTimes:
    """What building the batches took, over all processes that build them; the parts exclude one another."""

    num_batches: int
    num_samples: int
    busy_s: float
    """Wall time of building, summed over the processes."""
    cpu_s: float
    """Of the threads that build, on a processor or waiting for one that others have."""
    open_s: float
    """Opening and closing files."""
    read_s: float
    decode_s: float
    """Inside image decoders."""
    num_files: int
    read_bytes: int
    decoder: str = ""
    """Which decoder took most of it; empty where none was seen."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.num_batches < 1 or self.num_samples < 1 or self.busy_s <= 0:
            raise ValueError("loading times are of at least one batch")

    @property
    def rest_s(self) -> float:
        """Transforms, collation, and whatever reads files past Python."""
        return max(0.0, self.busy_s - self.open_s - self.read_s - self.decode_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryKinds:
    """Bytes of what training keeps, by kind; tensors that share memory count once."""

    parameters_bytes: int
    buffers_bytes: int
    gradients_bytes: int
    optimizer_state_bytes: int
    activations_bytes: int | None
    """Held by autograd for the backward pass of one micro-step, beyond parameters; None where nobody could see it."""
    batch_bytes: int

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTimes:
    """What a CUDA device did over some optimizer steps, from torch's profiler."""

    num_steps: int
    busy_s: float
    """Time in which any kernel or copy ran."""
    copy_s: float
    """Copies between host and device."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.num_steps < 1:
            raise ValueError("device times are of at least one step")


@dataclass(frozen=True, kw_only=True, slots=True)
class LargerBatch:
    """The training step on a batch so many times as large, without its loader."""

    factor: int
    own_step_s: float
    """On a batch of the script's size, in turns with the larger one."""
    step_s: float
    """On the larger one."""
    own_build_s: float | None = None
    """What building a batch of the script's size takes, in the process that trains; None where workers build, or where
    no larger one could be built."""
    build_s: float | None = None
    """What building the larger one takes, in turns with it."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.factor < 2 or self.step_s <= 0 or self.own_step_s <= 0:
            raise ValueError(f"a batch {self.factor} times as large in {self.step_s} s is none")


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatRatio:
    """The heaviest layers in another number format, forward and backward on copies."""

    precision: Precision
    ratio: float
    """Time in the script's format over time in this one: above 1 is faster."""
    num_layers: int

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        if not 0 < self.ratio < 1e6:
            raise ValueError(f"a ratio of times cannot be {self.ratio!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerTimes:
    """One step of the optimizer and of its fused form, on copies of the parameters."""

    name: str
    place: str
    """`file:line` of where the script builds it; empty where nobody saw."""
    own_s: float
    fused_s: float

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """All that was seen of one process after its window; None and empty for what could not be."""

    steps: StepTimes
    main_cpu_s: float
    """Processor time of the process that trains over `cpu_wall_s`, all of its threads."""
    cpu_wall_s: float
    host_places: tuple[HostPlace, ...] = ()
    is_sampled: bool = False
    """Whether shares of statements were measured: not where the script has the timer's signal or trains in a thread."""
    loading: LoadingTimes | None = None
    memory: MemoryKinds | None = None
    device: DeviceTimes | None = None
    larger_batch: LargerBatch | None = None
    formats: tuple[FormatRatio, ...] = ()
    optimizer: OptimizerTimes | None = None
    data_parallel: bool = False
    """Whether a model is wrapped in DataParallel, one process for several devices."""
    parameter_dtype: str = ""
    """Format of most parameters, as torch names it."""
    num_trainable: int = 0
    step_place: str = ""
    """`file:line` of the script's call of `optimizer.step`."""
    forward_place: str = ""
    """`file:line` of the script's call of its model."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
