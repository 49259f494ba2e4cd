"""The probe's facts about a script that trains by Keras."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.model.checks import check_figures


class DataKind(StrEnum):
    """The training data that `Model.fit` receives."""

    ARRAYS = "arrays"
    TF_DATA = "tf.data"
    PY_DATASET = "PyDataset"
    TORCH_LOADER = "DataLoader"
    GENERATOR = "generator"
    OTHER = "other"
    BATCHES = "batches"
    """The script hands over single batches, by `train_on_batch` or in its own loop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KerasFacts:
    """A Keras script, as shown by one run under its own settings."""

    version: str
    """Version of Keras; empty for a script's own loop with `autotune.step`."""
    engine: str
    """The engine below Keras: `tensorflow`, `jax` or `torch`."""
    installed_engines: tuple[str, ...] = ()
    """Engines that the script's Python can import."""
    script_engines: tuple[str, ...] = ()
    """Engines named by an import in the script's own files."""
    data: DataKind = DataKind.OTHER
    jit_compile: str = "auto"
    """The argument of `Model.compile`, as a value of settings.JitCompile."""
    runs_eagerly: bool = False
    steps_per_execution: int = 1
    sets_policy: bool = False
    """True when the script sets a dtype policy, for all layers or for the first."""
    has_batch_callbacks: bool = False
    """True when a callback of the script acts before or after single batches."""
    trains_on_batch: bool = False
    """True for `train_on_batch`, where the script makes the batches."""
    own_train_step: bool = False
    """True when the model's class has a `train_step` of its own."""
    accumulates: int = 1
    """Batches per update by the optimizer's own `gradient_accumulation_steps`."""
    dataset_workers: int = 1
    dataset_multiprocessing: bool = False
    dataset_queue: int = 10
    """Arguments of a PyDataset."""
    tf_data_threads: int = 0
    """Private threads of the dataset; 0 = the pool of the process."""
    tf_data_deterministic: bool = True
    tf_data_autotune: bool = True
    tf_data_ram_budget: int = 0
    """MiB for the buffers of the dataset; 0 = its own choice."""
    tf_data_cpu_budget: int = 0
    """Cores that the dataset counts on; 0 = all."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
