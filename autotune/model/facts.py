"""What the probe learned of a script: enough to override it soundly, or to refuse by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.model.checks import check_figures
from autotune.settings import Group


class LossReduction(StrEnum):
    """How the script's loss grows with the samples of a micro-batch; decides the scaling under accumulation."""

    MEAN = "mean"
    TOKEN_MEAN = "token_mean"
    """A mean over targets of which batches have different numbers: the mean of the parts' means is another one."""
    SUM = "sum"
    UNKNOWN = "unknown"


class BatchSamplerKind(StrEnum):
    """Who makes the batches of a loader."""

    DEFAULT = "default"
    """torch, from batch_size."""
    STANDARD = "standard"
    """A torch BatchSampler that the script built; its size can be changed."""
    CUSTOM = "custom"
    """A class of the script's own; its size is the script's affair."""
    NONE = "none"
    """No automatic batching."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderFacts:
    """The training loader, as the script builds it."""

    keys: tuple[str, ...]
    """Construction sites (`file:line#ordinal`) of all loaders over the trained dataset."""
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
    """Batches of one epoch on one device; None where the loader has no length."""
    num_samples: int | None
    """Samples of the dataset; None where it has no length."""
    batch_bytes: int
    """Bytes of the tensors in one batch."""
    is_read_before_training: bool
    """The script runs through the loader once without training, for instance for statistics."""
    num_passes_before_training: int = 0
    """Iterations over the loader that the script begins before the one it trains in: a look at the first batch, a run
    for statistics. Trials hold the workers back from the one that trains on."""

    batches_vary: bool = False
    """Batches differ in their bytes, as padded texts of different lengths do; a last one with fewer samples does not
    count. Then the rate on one of them is no bound of the rate on all."""

    def __post_init__(self) -> None:
        """Refuses loaders that cannot be."""
        check_figures(self)
        if self.batch_size == 0:
            raise ValueError("a batch holds at least one sample")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArgumentFacts:
    """An argument of the script that looks like one for a setting."""

    name: str
    """As before the `=` of --map: the setting, or `SETTING.VALUE` for an argument that stands for one value."""
    template: str
    """As after it: `--batch-size={}`."""
    is_taken: bool
    """The training loader was seen to be built from this very argument, so that it is used without being asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisibleDevices:
    """What torch said of CUDA devices in a process that had asked the driver."""

    asked_for: str | None
    """CUDA_VISIBLE_DEVICES at that time; None = it was not set."""
    num_devices: int
    """0 where there is none that torch can use."""
    capabilities: tuple[tuple[int, int], ...] = ()
    """Compute capability of each device, major and minor; empty where the process had not started CUDA."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptFacts:
    """The script, as one run under its own settings showed it."""

    device: str
    """Type of the device that trains: `cpu`, `cuda`, `mps`, ..."""
    world_size: int
    loader: LoaderFacts | None
    """None where the script has no torch DataLoader that trains."""
    num_micro_batches_per_step: int
    """Batches taken per optimizer step: above 1 the script accumulates by itself."""
    num_backwards_per_step: int
    """Backward passes per optimizer step."""
    num_optimizers: int
    """torch optimizers that stepped; 0 = a hand-written update."""
    optimizer: str
    uses_closure: bool
    num_batch_norms: int
    num_convolutions: int
    num_root_modules: int
    """Modules that the script itself calls while it trains."""
    own_autocast: str | None
    """dtype of the script's own enabled autocast regions."""
    own_grad_scaler: bool
    own_compile: bool
    own_threads: bool
    """The script sets torch's number of threads by itself."""
    own_cudnn_benchmark: bool
    own_memory_fraction: bool
    loss_reduction: LossReduction
    first_loss: float | None
    first_grad_norm: float | None
    intra_op_threads: int
    omp_wait_policy: str
    precision: str
    """Precision in force, as a value of settings.Precision."""
    claims: tuple[Group, ...]
    """Groups that the script applies itself through autotune.load."""
    knobs: tuple[tuple[str, str], ...]
    """Declared knobs and their defaults in the script's call of autotune.load."""
    modules: tuple[str, ...]
    """Top-level modules that the script imported."""
    imports: tuple[str, ...] = ()
    """All modules from installed packages that were imported by the end of the probe."""
    early_environment: tuple[str, ...] = ()
    """Variables that the script changed before it imported torch."""
    imported_after_freeze: str = ""
    """A module from an installed package that was imported after the script had frozen its heap; empty where none
    was."""
    device_numbers: tuple[int, ...] = ()
    """Numbers of the CUDA devices on which one process computes, in rising order; empty on a CPU."""
    cuda_devices: VisibleDevices | None = None
    """None where the process could not ask."""
    torch_version: str
    num_parameters: int
    first_step_s: float
    """Seconds from the start of the process to the end of the first optimizer step."""
    step_s: float
    """Seconds of one optimizer step after the first, under the script's own settings."""
    num_steps: int
    """Optimizer steps that the probe saw."""
    leading_size: int | None = None
    """First dimension of the tensors in a batch; samples only where nothing better is known."""
    schedule_follows_length: bool = False
    """A scheduler is stepped per batch, and the script asked for the length of its training loader before it trained:
    the schedule is probably made for so many batches. When the batch is split there are more, and fewer steps of the
    scheduler than it was made for."""
    loss_targets_vary: bool = False
    """Batches have different numbers of targets per sample, and the loss is a mean over targets."""
    outside_allocator_bytes: int | None = None
    """Device memory of the process outside its caching allocator, as the tuner saw it from outside; None on a CPU."""
    validation_bytes: int | None = None
    """Most device memory in use while the script ran its model without gradients; trials end before they come to that.
    None where it did not, or on a CPU."""
    validation_host_bytes: int | None = None
    """Most memory of the host, that of its own workers included, while the script ran its model without gradients; None
    where it did not."""
    validation_host_growth_bytes: int | None = None
    """How much of that was more than the process held after the step before."""
    own_channels_last: bool = False
    """All weights of the script's convolutions lie in NHWC order."""
    baseline_readings: tuple[tuple[str, str], ...] = ()
    """Settings that the script's own trial showed otherwise than the probe, as (field, text): what holds."""
    arguments: tuple[ArgumentFacts, ...] = ()
    """Arguments of the script that can stand for a setting."""
    escaped: tuple[str, ...] = ()
    """User's files that were changed or removed during the probe, in spite of the protection."""
    notes: tuple[str, ...] = ()
    """`several_loaders` take part in training alike; `reads_ahead`: the training loader is read in a thread of its own,
    so that batches cannot be assigned to steps; `replays_batches`: it is asked for one epoch, which is kept and used
    again and again; `unguarded_spawn`: its workers would run the script again;
    `format_unseen`: nothing showed in which number format the model computes; `launcher_threads`: the launcher set the
    number of threads, which the user did not; `data_parallel`: torch.nn.DataParallel spreads each batch over devices;
    `no_convolution`: no parameter has the shape of a convolution's weight; `deterministic`: the script asks for kernels
    that give the same numbers in every run."""


def samples_unit(facts: ScriptFacts | None, samples_per_step: float | None) -> str:
    """What rates of a script are of: `samples`, or `steps` where nobody can say how many samples a step has.

    Args:
        facts: Of the script, where they are known.
        samples_per_step: As the user said.
    """
    return "steps" if facts is not None and facts.loader is None and samples_per_step is None else "samples"
