"""The values of one trial: a field per setting, with checks and comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Self

from autotune.errors import SearchSpaceError
from autotune.settings.bucket_mb import DEFAULT_BUCKET_MB
from autotune.settings.compile_mode import CompileMode
from autotune.settings.jit_compile import JitCompile
from autotune.settings.keras_backend import KerasBackend
from autotune.settings.matmul_precision import MatmulPrecision
from autotune.settings.multiprocessing_context import StartMethod
from autotune.settings.omp_wait_policy import OmpWaitPolicy
from autotune.settings.optimizer_form import OptimizerForm
from autotune.settings.precision import Precision
from autotune.settings.prefetch_factor import DEFAULT_PREFETCH_FACTOR
from autotune.settings.registry import GROUP_OF_FIELD, INERT_ON_CPU, INERT_WITHOUT_WORKERS, SETTINGS
from autotune.settings.sdpa_backend import SdpaBackend
from autotune.settings.tf_gpu_allocator import TfGpuAllocator
from autotune.settings.unused_blocks import UnusedBlocks
from autotune.settings.xla_flags import XlaFlags

BOUNDS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {each.name: each.bounds for each in SETTINGS if each.bounds is not None}
)
"""Least and largest value of whole numbers. Without bounds, a file from a stranger could start a billion processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The values of one trial. Defaults are the values of a plain torch script."""

    num_workers: int = 0
    """Worker processes of the training loader; 0 = the training process loads."""
    prefetch_factor: int = DEFAULT_PREFETCH_FACTOR
    """Batches ahead per worker; inert without workers."""
    pin_memory: bool = False
    """Batches are copied to page-locked memory."""
    persistent_workers: bool = False
    """Workers live on between epochs; inert without workers."""
    in_order: bool = True
    """Batches come in the order of the sampler; inert with fewer than two workers."""
    multiprocessing_context: StartMethod = StartMethod.DEFAULT
    """Start of the workers; inert without workers."""
    worker_threads: int = 0
    """Threads of OpenCV and other libraries in each worker; 0 = as many as the libraries choose."""
    free_workers: bool = False
    """Workers run on all cores, also where the training process is pinned to a few; inert without workers."""
    batch_size: int | None = None
    """Micro-batch: samples of a forward-backward pass on a single device; None = the script's own, unknown."""
    grad_accum_steps: int = 1
    """Micro-batches per optimizer step."""
    precision: Precision = Precision.FP32
    """Number format of the forward pass."""
    matmul_precision: MatmulPrecision = MatmulPrecision.HIGHEST
    """Accuracy of fp32 matrix products; inert unless `precision` is fp32."""
    memory_fraction: float = 1.0
    """Largest share of the device's memory for the caching allocator, above 0, at most 1; inert on a CPU."""
    expandable_segments: bool = False
    """Allocator segments that grow; inert on a CPU."""
    unused_blocks: UnusedBlocks = UnusedBlocks.KEEP
    """Cached memory without a tensor; inert on a CPU, and beside `expandable_segments`."""
    cudnn_benchmark: bool = False
    """cuDNN times its algorithms and keeps the fastest; inert on a CPU."""
    cudnn_benchmark_limit: int = 10
    """Algorithms timed for each convolution, 0 = all; inert without `cudnn_benchmark`."""
    channels_last: bool = False
    """Four-dimensional weights and inputs in NHWC order."""
    sdpa_backend: SdpaBackend = SdpaBackend.DEFAULT
    """Kernels behind scaled_dot_product_attention; inert on a CPU."""
    activation_checkpointing: bool = False
    """Repeated blocks of the model compute their activations again in backward."""
    compile: bool = False
    """The model runs through torch.compile."""
    compile_mode: CompileMode = CompileMode.DEFAULT
    """How much torch.compile builds; inert without `compile`."""
    activation_memory_budget: float = 1.0
    """Share of the activations kept by a compiled model, above 0, at most 1; inert without `compile`."""
    non_blocking: bool = False
    """Copies to the device do not wait for their end; inert on a CPU, and beside `stream_prefetch`."""
    stream_prefetch: bool = False
    """The next batch is copied on a side stream; inert on a CPU."""
    optimizer_form: OptimizerForm = OptimizerForm.DEFAULT
    """Implementation of the optimizer's step."""
    gradient_as_bucket_view: bool = False
    """Gradients lie in the buckets of DistributedDataParallel."""
    static_graph: bool = False
    """DistributedDataParallel takes every step for alike."""
    bucket_mb: int = DEFAULT_BUCKET_MB
    """MiB of a bucket of DistributedDataParallel."""
    intra_op_threads: int = 1
    """Threads of an operation in the training process."""
    omp_wait_policy: OmpWaitPolicy = OmpWaitPolicy.DEFAULT
    """Behaviour of idle threads."""
    keep_freed_memory: bool = False
    """The C library keeps the host memory that a step frees."""
    keras_backend: KerasBackend = KerasBackend.NONE
    """Engine below Keras; `none` for a script of torch."""
    jit_compile: JitCompile = JitCompile.AUTO
    """Whether a Keras model's step is compiled."""
    steps_per_execution: int = 1
    """Batches of one call of a Keras model's step."""
    engine_threads: int = 0
    """Threads of an operation of Keras' engine; 0 = the engine's choice."""
    tf_data_threads: int = 0
    """Private threads of a tf.data dataset; 0 = the pool of the process."""
    tf_data_deterministic: bool = True
    """A tf.data dataset keeps the order of its elements."""
    tf_data_autotune: bool = True
    """A tf.data dataset chooses its parallelism and buffers while it runs."""
    tf_data_ram_budget: int = 0
    """MiB for the buffers of a tf.data dataset; 0 = its own choice; inert without `tf_data_autotune`."""
    tf_data_cpu_budget: int = 0
    """Cores that a tf.data dataset counts on; 0 = all; inert without `tf_data_autotune`."""
    tf_data_prefetch: bool = False
    """A tf.data dataset ends in a prefetch of its own choice of size."""
    tf_device_prefetch: bool = False
    """A tf.data dataset copies batches to the GPU ahead of time; inert on a CPU and on other engines."""
    dataset_workers: int = 1
    """Workers of a PyDataset; 1 = the training process loads."""
    dataset_multiprocessing: bool = False
    """Workers of a PyDataset are processes; inert with a single worker."""
    dataset_queue: int = 10
    """Batches ready of a PyDataset; inert with a single worker."""
    tf_memory_growth: bool = False
    """TensorFlow takes memory bit by bit; inert on a CPU and on other engines."""
    tf_gpu_allocator: TfGpuAllocator = TfGpuAllocator.DEFAULT
    """Allocator below TensorFlow; inert on a CPU and on other engines."""
    engine_memory_fraction: float = 1.0
    """Largest share of the device's memory for Keras' engine, above 0, at most 1; inert on a CPU."""
    xla_flags: XlaFlags = XlaFlags.DEFAULT
    """Options of XLA; inert on a CPU and on the torch engine."""
    knobs: tuple[tuple[str, str], ...] = ()
    """The user's own knobs as (name, value), sorted by name."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name, members in MEMBERS.items():
            value = getattr(self, name)
            member = members.get(value) if isinstance(value, str) else None
            if member is not value:
                object.__setattr__(self, name, member or _member(KINDS[name], name, value))
        for value, (name, (least, most)) in zip(_numbers_of(self), BOUNDS.items(), strict=True):
            if value is not None or name != "batch_size":
                _check_int(name, value, least, most)
        for name in SHARES:
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
                raise SearchSpaceError(f"{name} {share!r} is not a share.", "It is above 0 and at most 1.")
        for name, value in zip(BOOLEAN_FIELDS, _booleans_of(self), strict=True):
            if not isinstance(value, bool):
                raise SearchSpaceError(
                    f"{name} {getattr(self, name)!r} is not true or false.", "Write true or false, without quotes."
                )
        if not self.knobs:
            object.__setattr__(self, "knobs", ())
            return
        object.__setattr__(self, "knobs", tuple(sorted((str(k), str(v)) for k, v in self.knobs)))
        names = [name for name, _ in self.knobs]
        if len(set(names)) != len(names) or set(names) & set(GROUP_OF_FIELD):
            raise SearchSpaceError(
                f"Knob names {names} are not unique, or one is the name of a setting.",
                "Give each knob a name of its own.",
            )

    def canonical(self, *, device_is_cpu: bool) -> Settings:
        """The settings with every inert value at the default, so that equal behaviour compares equal."""
        changes = {**self.inert, **(INERT_ON_CPU if device_is_cpu else {})}
        is_canonical = all(getattr(self, name) == value for name, value in changes.items())
        return self if is_canonical else replace(self, **changes)

    @property
    def inert(self) -> dict[str, Any]:
        """Settings without effect beside the rest, on any device, and their defaults."""
        inert: dict[str, Any] = {}
        if self.num_workers == 0:
            inert.update(INERT_WITHOUT_WORKERS)
        inert.update({name: default for name, (is_inert, default) in _INERT_TESTS.items() if is_inert(self)})
        return inert

    @property
    def is_of_torch(self) -> bool:
        """Whether a script of torch has the settings: without workers its batches are built between two steps."""
        return self.keras_backend is KerasBackend.NONE

    def effective_batch(self, world_size: int = 1) -> int | None:
        """Samples per optimizer step over all devices; None when the batch is unknown."""
        if self.batch_size is None:
            return None
        return self.batch_size * self.grad_accum_steps * world_size

    def differences(self, other: Settings) -> dict[str, tuple[Any, Any]]:
        """Differing fields, as name -> (value here, value of `other`); knobs under `knobs.NAME`."""
        values = zip(GROUP_OF_FIELD, _values_of(self), _values_of(other), strict=True)
        result: dict[str, tuple[Any, Any]] = {name: (here, there) for name, here, there in values if here != there}
        if self.knobs == other.knobs:
            return result
        ours, theirs = dict(self.knobs), dict(other.knobs)
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                result[f"knobs.{name}"] = (ours.get(name), theirs.get(name))
        return result

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON or YAML; knobs as a mapping."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values.update({name: values[name].value for name in KINDS})
        values["knobs"] = dict(self.knobs)
        return values

    def to_short_dict(self) -> dict[str, Any]:
        """Plain values of the fields that differ from their defaults; `from_dict` gives the settings back."""
        defaults = type(self)().to_dict()
        return {name: value for name, value in self.to_dict().items() if value != defaults[name]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Settings from plain values; a missing field takes its default.

        Raises:
            SearchSpaceError: A field is unknown, or its value is impossible.
        """
        unknown = sorted(values.keys() - FIELDS)
        if unknown:
            raise SearchSpaceError(f"{unknown[0]!r} is not a setting.", f"Settings are {', '.join(sorted(FIELDS))}.")
        plain = dict(values)
        knobs = plain.pop("knobs", {})
        if not isinstance(knobs, Mapping):
            raise SearchSpaceError(
                f"knobs {knobs!r} is not a mapping from name to value.", 'Write it as {"storage": "lmdb"}.'
            )
        return cls(**plain, knobs=tuple((str(name), str(value)) for name, value in knobs.items()))


FIELDS = frozenset(each.name for each in fields(Settings))
SHARES = tuple(each.name for each in SETTINGS if isinstance(each.default, float))
BOOLEAN_FIELDS = tuple(each.name for each in SETTINGS if isinstance(each.default, bool))
KINDS = {each.name: type(each.default) for each in SETTINGS if isinstance(each.default, StrEnum)}
"""Settings with named values, and the type of the values."""
MEMBERS = {name: {member.value: member for member in kind} for name, kind in KINDS.items()}
"""The named values of these settings, by text."""
_numbers_of: Callable[[Settings], tuple[Any, ...]] = attrgetter(*BOUNDS)
_booleans_of: Callable[[Settings], tuple[Any, ...]] = attrgetter(*BOOLEAN_FIELDS)
_values_of: Callable[[Settings], tuple[Any, ...]] = attrgetter(*GROUP_OF_FIELD)
_INERT_TESTS = {each.name: (each.is_inert, each.default) for each in SETTINGS if each.is_inert is not None}


def text_of(value: object) -> str:
    """A value as text for arguments, variables and files: `true`, and `0.5`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_int(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SearchSpaceError(
            f"{name} {value!r} is not a whole number of at least {least}.", "Write it without a point, and not as text."
        )
    if value > most:
        shown = value if value < 10**15 else "with so many digits"
        raise SearchSpaceError(f"{name} {shown} is more than {most}, which no machine has a use for.", "Give less.")


def _member(kind: type[StrEnum], name: str, value: Any) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(member.value for member in kind)
        raise SearchSpaceError(f"{name} {value!r} is unknown.", f"It is one of {choices}.") from None
