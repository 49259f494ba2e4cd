"""The probe's facts about a script: enough to override settings soundly, or to refuse with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.model.checks import check_figures
from autotune.model.keras_facts import KerasFacts
from autotune.model.storage_traps import StorageTrap
from autotune.settings import Group


class LossReduction(StrEnum):
    """How the script's loss grows with the samples of a micro-batch; decides the scaling under accumulation."""

    MEAN = "mean"
    TOKEN_MEAN = "token_mean"
    """A mean over targets, whose number differs by batch: the mean of partial means is not the whole mean."""
    SUM = "sum"
    UNKNOWN = "unknown"
    """Neither a mean nor a sum, by a step with the batch in parts; or not looked at."""
    NO_TIME = "no_time"
    """The time of the search did not suffice for a step with the batch in parts."""
    FAILED = "failed"
    """The script failed in a step with the batch in parts."""
    INDIVISIBLE = "indivisible"
    """The batch divides only into more parts than a step can try."""


class BatchSamplerKind(StrEnum):
    """The maker of a loader's batches."""

    DEFAULT = "default"
    """torch, from batch_size."""
    STANDARD = "standard"
    """A torch BatchSampler built by the script; its size can be changed."""
    CUSTOM = "custom"
    """A class of the script's own; its size belongs to the script."""
    NONE = "none"
    """No automatic batching."""


class BatchCopy(StrEnum):
    """How the script brings its batches to the device: decides about copies ahead, and copies that do not wait."""

    UNSEEN = "unseen"
    """Not looked at: on a CPU, in scripts that compile, and in probes of older versions."""
    DIRECT = "direct"
    """The copy is the first use of every copied tensor of a batch, and the script leaves the host's tensor alone."""
    NONE = "none"
    """No tensor of a batch is copied as the loader made it."""
    USED = "used"
    """The script reads or changes tensors on the host, beside copying the tensors."""
    WRITTEN = "written"
    """The script writes to tensors on the host after copying the tensors."""
    REUSED = "reused"
    """The script or its loader writes later batches to the same page-locked memory."""
    KEPT = "kept"
    """The script keeps batches over many steps."""
    OWN_STREAM = "own_stream"
    """The script copies on a stream of its own."""
    OWN_TYPE = "own_type"
    """Tensors lie in objects of a class without a method `to`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderFacts:
    """The training loader, as built by the script."""

    keys: tuple[str, ...]
    """Construction sites (`file:line#ordinal`) of all loaders over the training dataset."""
    dataset: str
    """Class name of the dataset."""
    is_iterable: bool
    num_workers: int
    prefetch_factor: int
    pin_memory: bool
    persistent_workers: bool
    batch_size: int | None
    drop_last: bool
    batch_sampler: BatchSamplerKind
    num_batches: int | None
    """Batches of one epoch on one device; None when the loader has no length."""
    num_samples: int | None
    """Samples of the dataset; None when it has no length."""
    batch_bytes: int
    """Bytes of the tensors in one batch, and in one of each loader beside."""
    is_read_before_training: bool
    """True when the script iterates over the loader once without training, for instance for statistics."""
    beside: tuple[tuple[str, ...], ...] = ()
    """Construction sites of each further loader that trains side by side with this loader, such as for unlabelled data.
    All have the same settings, and trials change all of them alike. Empty for a single loader, and where the loaders
    differ in settings or kind."""
    num_passes_before_training: int = 0
    """Iterations over the loader before the training iteration: a look at the first batch, a run for statistics. Trials
    hold the workers back from the training iteration on."""

    is_rebuilt: bool = False
    """True when the script builds a new loader for every epoch."""
    batches_vary: bool = False
    """True when batches differ in bytes, such as padded texts of different lengths. A smaller last batch does not
    count. The rate on one batch is then no bound of the rate on all."""
    splits_among_workers: bool = False
    """True for an IterableDataset that gives each worker a share of its own."""
    num_shards: int | None = None
    """Shards of an IterableDataset, each read by one worker; None when unknown, or when the dataset has no shards."""
    in_order: bool = True
    multiprocessing_context: str = "default"
    """Start method named by the script; `default` for the system's."""
    is_shuffled: bool = False
    """True when torch's own samplers draw the samples at random."""
    spawn_refusal: str = ""
    """Why workers cannot be started without a fork; empty when possible, or when nothing speaks against a fork."""
    inherited_start: str = ""
    """Start method that the workers inherit from the training process: spawn in ranks of `torch.multiprocessing.spawn`.
    Empty for forked workers, for a method named by the script, and for a dataset that forked workers may break."""
    traps: tuple[StorageTrap, ...] = ()
    """Traps of the stored dataset."""

    def ends_with_smaller_batch(self, batch_size: int | None) -> bool:
        """True when the last batch of an epoch is known to be smaller than the others, with batches of this size."""
        if self.drop_last or not (self.num_samples and self.batch_size and self.num_batches and batch_size):
            return False
        has_all_samples = self.num_batches == -(-self.num_samples // self.batch_size)  # A rank has only a share.
        return has_all_samples and self.num_samples > batch_size and self.num_samples % batch_size > 0

    def __post_init__(self) -> None:
        """Raises `ValueError` for an impossible loader."""
        check_figures(self)
        if self.batch_size == 0:
            raise ValueError("a batch holds at least one sample")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArgumentFacts:
    """An argument of the script whose name suggests a setting."""

    name: str
    """Name before the `=` of --map: the setting, or `SETTING.VALUE` for an argument with a single value."""
    template: str
    """Template after the `=` of --map: `--batch-size={}`."""
    is_taken: bool
    """True when the training loader was built from this very argument, so that the argument is used automatically."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisibleDevices:
    """torch's answer about CUDA devices in a process that had asked the driver."""

    asked_for: str | None
    """Value of CUDA_VISIBLE_DEVICES at that time; None if unset."""
    num_devices: int
    """Devices usable by torch; 0 without any."""
    capabilities: tuple[tuple[int, int], ...] = ()
    """Compute capability of each device, major and minor; empty when the process had not started CUDA."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptFacts:
    """The script, as shown by one run under its own settings."""

    device: str
    """Type of the training device: `cpu`, `cuda`, `mps`, ..."""
    world_size: int
    loader: LoaderFacts | None
    """None when no torch DataLoader feeds the training."""
    num_micro_batches_per_step: int
    """Batches per optimizer step: above 1 the script accumulates by itself."""
    num_backwards_per_step: int
    """Backward passes per optimizer step."""
    num_optimizers: int
    """torch optimizers with at least one step; 0 = a hand-written update."""
    optimizer: str
    uses_closure: bool
    counts_evaluations: bool = False
    """True when the optimizer evaluates its closure several times in a step and no batches are counted: each evaluation
    then counts as a step."""
    num_batch_norms: int
    num_convolutions: int
    has_unsafe_loss: bool = False
    """True when the loss comes from `binary_cross_entropy` of probabilities, which CUDA's autocast refuses."""
    recurrent_share: float = 0.0
    """Share of the forward pass's multiplications in torch's recurrent layers, 0 to 1."""
    num_root_modules: int
    """Modules called by the script itself during training."""
    own_autocast: str | None
    """dtype of the script's own enabled autocast regions; several with commas."""
    own_grad_scaler: bool
    own_compile: bool
    own_threads: bool
    """True when the script sets torch's number of threads."""
    own_cudnn_benchmark: bool
    own_memory_fraction: bool
    loss_reduction: LossReduction
    first_loss: float | None
    first_grad_norm: float | None
    intra_op_threads: int
    omp_wait_policy: str
    keeps_freed_memory: bool | None = None
    """Whether the C library keeps host memory that is freed; None for other libraries than GNU's."""
    frees_larger_blocks: bool = False
    """True when another loader of the script has larger batches, as for validation: from the first such batch on, the C
    library gives less memory back to the system."""
    pages_per_step: float | None = None
    """Pages of memory that the process asked the system for in an optimizer step after the first; None = unknown."""
    precision: str
    """Precision in force, as a value of settings.Precision."""
    claims: tuple[Group, ...]
    """Groups that the script applies itself through autotune.load."""
    knobs: tuple[tuple[str, str], ...]
    """Declared knobs with their defaults, from the script's call of autotune.load."""
    modules: tuple[str, ...]
    """Top-level modules imported by the script."""
    imports: tuple[str, ...] = ()
    """All modules of installed packages imported by the end of the probe."""
    early_environment: tuple[str, ...] = ()
    """Environment variables changed by the script before it imported torch."""
    imported_after_freeze: str = ""
    """A module of an installed package imported after the script had frozen its heap; empty without such a module."""
    device_numbers: tuple[int, ...] = ()
    """Numbers of the CUDA devices used by one process, in rising order; empty on a CPU."""
    cuda_devices: VisibleDevices | None = None
    """None when the process could not ask."""
    torch_version: str
    num_parameters: int
    first_step_s: float
    """Seconds from the start of the process to the end of the first optimizer step."""
    step_s: float
    """Seconds of one optimizer step after the first, under the script's own settings."""
    num_steps: int
    """Optimizer steps seen by the probe."""
    leading_size: int | None = None
    """First dimension of the tensors in a batch; used as the number of samples only when nothing better is known."""
    schedule_follows_length: bool = False
    """True when a scheduler is stepped per batch and the script asked for its training loader's length before training:
    the schedule is probably made for that length. Splitting a batch changes the number of scheduler steps."""
    loss_targets_vary: bool = False
    """True when batches have different numbers of targets per sample, and the loss is a mean over targets."""
    outside_allocator_bytes: int | None = None
    """Device memory of the process outside its caching allocator, as seen by the tuner from outside; None on a CPU."""
    validation_bytes: int | None = None
    """Peak device memory while the script ran its model without gradients; trials end before such a run. None when the
    script did not, or on a CPU."""
    validation_host_bytes: int | None = None
    """Peak host memory, workers included, while the script ran the model without gradients; None without a run of this
    kind."""
    validation_host_growth_bytes: int | None = None
    """Growth of the process's host memory since the preceding step, part of `validation_host_bytes`."""
    num_repeated_blocks: int = 0
    """Blocks of the model whose activations can be computed again in backward."""
    num_block_shapes: int = 0
    """Different shapes among these blocks, each with a graph of its own; 0 when unknown, as in older records."""
    own_optimizer_form: str = "default"
    """Form of the script's optimizers, as a value of settings.OptimizerForm; `default` where optimizers differ."""
    optimizer_forms: tuple[str, ...] = ()
    """Forms that all optimizers of the script can take; empty for optimizers outside torch."""
    batch_copy: BatchCopy = BatchCopy.UNSEEN
    argument_batch: int | None = None
    """Micro-batch of a script without a loader: the size of the model's inputs, and the value of an argument of the
    script. The script then accumulates as an argument tells, too."""
    accumulation_variable: str = ""
    """Variable of the main module by which the script accumulates, in a loop of the usual shape; empty without."""
    own_ddp: tuple[tuple[str, bool | int], ...] = ()
    """Settings of DistributedDataParallel by name, and `find_unused_parameters`; empty without this wrapper."""
    foreign_loader: str = ""
    """Library of a counted loader other than torch's DataLoader; empty for a DataLoader, and without a loader."""
    foreign_batches_vary: bool = False
    """True when batches of such a loader differ in bytes."""
    own_matmul_precision: str = "highest"
    """Accuracy of fp32 matrix products in force, as a value of settings.MatmulPrecision."""
    own_channels_last: bool = False
    """True when all weights of the script's convolutions lie in NHWC order."""
    baseline_readings: tuple[tuple[str, str], ...] = ()
    """Settings read otherwise in the script's own trial than in the probe, as (field, text); the trial holds."""
    arguments: tuple[ArgumentFacts, ...] = ()
    """Arguments of the script that can set a setting."""
    call_flops: float | None = None
    """Floating point operations of a call of the model with one micro-batch, forward and backward; None for several
    models and for a compiled model."""
    saved_bytes: int | None = None
    """Memory kept by the forward pass of one micro-batch for the backward pass; None for a compiled model."""
    peak_allocated_bytes: int | None = None
    """Peak of the caching allocator in the probe; None on a CPU."""
    allocated_before_bytes: int | None = None
    """Memory of the caching allocator before the first forward pass: parameters, buffers, data; None on a CPU."""
    workspace_bytes: int | None = None
    """Workspaces kept by CUDA's libraries in the caching allocator; None on a CPU."""
    optimizer_state_bytes: int | None = None
    """Memory of the optimizer's state on one rank; None without a torch optimizer."""
    parameter_bytes: int | None = None
    """Memory of the parameters on one rank."""
    gradient_bytes: int | None = None
    """Memory of the gradients on one rank, at the end of a step."""
    keras: KerasFacts | None = None
    """None for a script that trains by torch's own optimizers."""
    escaped: tuple[str, ...] = ()
    """User files changed or removed during the probe in spite of the protection."""
    notes: tuple[str, ...] = ()
    """Codes of notes. `several_loaders`: several loaders take part in training alike, and the samples of one are
    counted. `reads_ahead`: a separate thread reads the training loader, so batches cannot be assigned to steps.
    `replays_batches`: the script keeps one epoch of the loader and uses it again and again. `unguarded_spawn`:
    spawned workers would run the script again. `format_unseen`: the model's number format could not be observed.
    `launcher_threads`: the launcher, not the user, set the number of threads. `data_parallel`: torch.nn.DataParallel
    spreads each batch over devices. `no_convolution`: no parameter has the shape of a convolution's weight.
    `deterministic`: the script requests kernels with reproducible results. `attention`: the model calls
    scaled_dot_product_attention. `own_attention`: the script switches kernels of attention on or off. `ddp`:
    DistributedDataParallel wraps the model. `sharded`: each rank holds a share of the weights only (FSDP).
    `deepspeed`: DeepSpeed's engine trains. `steps_copies`: the optimizer's weights are none of the model's.
    `pinned_process`: a library has taken cores from the training process. `varying_inputs`: the model's inputs
    differ in shape. `recurring_inputs`: the same few shapes come back. `varying_batches`: these shapes differ from
    batch to batch, and the rate on one batch is no bound of the rate on all. `kept_outputs`: outputs of the model
    live longer than a step."""

    @property
    def batches_vary(self) -> bool:
        """True when the rate on one batch says nothing of other batches."""
        by_loader = self.foreign_batches_vary if self.loader is None else self.loader.batches_vary
        return by_loader or "varying_batches" in self.notes

    @property
    def framework(self) -> str:
        """What trains: `torch`, `keras`, or `loop` for a loop of the script's own with `autotune.step`."""
        if self.keras is None:
            return "torch"
        return "keras" if self.keras.version else "loop"


def samples_unit(facts: ScriptFacts | None, samples_per_step: float | None) -> str:
    """The unit of a script's rates: `samples`, or `steps` when the samples per step are unknown.

    Args:
        facts: Facts of the script, if known.
        samples_per_step: Number given by the user.
    """
    is_counted = facts is None or facts.loader is not None or bool(facts.foreign_loader)
    return "samples" if is_counted or samples_per_step is not None else "steps"
