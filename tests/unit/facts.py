"""Facts of an ordinary script, to be changed by the tests one at a time."""

from __future__ import annotations

from typing import Any

from autotune.host import DeviceInfo
from autotune.model.facts import BatchSamplerKind, LoaderFacts, LossReduction, ScriptFacts
from autotune.model.keras_facts import DataKind, KerasFacts
from autotune.space.derive import Machine
from autotune.spec import SearchSpec
from autotune.units import GIB


def loader_facts(**changes: Any) -> LoaderFacts:
    values: dict[str, Any] = {
        "keys": ("train.py:10~0#0",),
        "dataset": "Photos",
        "is_iterable": False,
        "num_workers": 0,
        "prefetch_factor": 2,
        "pin_memory": False,
        "persistent_workers": False,
        "batch_size": 64,
        "drop_last": False,
        "batch_sampler": BatchSamplerKind.DEFAULT,
        "num_batches": 100,
        "num_samples": 6400,
        "batch_bytes": 64 * 1000,
        "is_read_before_training": False,
    }
    return LoaderFacts(**{**values, **changes})


def script_facts(**changes: Any) -> ScriptFacts:
    values: dict[str, Any] = {
        "device": "cpu",
        "world_size": 1,
        "loader": loader_facts(),
        "num_micro_batches_per_step": 1,
        "num_backwards_per_step": 1,
        "num_optimizers": 1,
        "optimizer": "SGD",
        "uses_closure": False,
        "num_batch_norms": 0,
        "num_convolutions": 3,
        "num_root_modules": 1,
        "own_autocast": None,
        "own_grad_scaler": False,
        "own_compile": False,
        "own_threads": False,
        "own_cudnn_benchmark": False,
        "own_memory_fraction": False,
        "loss_reduction": LossReduction.MEAN,
        "first_loss": 2.3,
        "first_grad_norm": 1.0,
        "intra_op_threads": 2,
        "omp_wait_policy": "default",
        "precision": "fp32",
        "claims": (),
        "knobs": (),
        "modules": ("torch",),
        "torch_version": "2.13.0",
        "num_parameters": 1000,
        "first_step_s": 2.0,
        "step_s": 0.1,
        "num_steps": 6,
    }
    return ScriptFacts(**{**values, **changes})


def keras_script_facts(**changes: Any) -> ScriptFacts:
    """A script that trains by `Model.fit` on TensorFlow, beside JAX and torch; changes are of its Keras."""
    values: dict[str, Any] = {
        "version": "3.15.1",
        "engine": "tensorflow",
        "installed_engines": ("tensorflow", "jax", "torch"),
        "data": DataKind.ARRAYS,
    }
    return script_facts(keras=KerasFacts(**{**values, **changes}), loader=loader_facts(keys=()))


def cpu_machine(cpus: float = 2.0, shm_free_bytes: int | None = None) -> Machine:
    device = DeviceInfo(kind="cpu", name="CPU", total_bytes=16 * GIB, free_bytes=12 * GIB)
    return Machine(usable_cpus=cpus, device=device, shm_free_bytes=shm_free_bytes)


def gpu_machine(capability: tuple[int, int] = (9, 0)) -> Machine:
    device = DeviceInfo(
        kind="cuda", name="GPU", total_bytes=80 * GIB, free_bytes=79 * GIB, uuid="GPU-1", capability=capability
    )
    return Machine(usable_cpus=8.0, device=device, shm_free_bytes=8 * GIB)


def search_spec(**changes: Any) -> SearchSpec:
    values: dict[str, Any] = {
        "command": ("python", "train.py"),
        "script": "train.py",
        "cwd": "/tmp",
        "study": "train",
    }
    return SearchSpec(**{**values, **changes})
