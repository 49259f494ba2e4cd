"""Settings in force, read back from the objects themselves: asked is compared with this after every trial."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from autotune.settings import DEFAULT_PREFETCH_FACTOR, OmpWaitPolicy, Precision
from autotune.trial.step import channels_last
from autotune.trial.torch import torch_names


def loader_settings(loader: Any) -> dict[str, str]:
    """What a DataLoader really does, by field."""
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    observed = {
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor or DEFAULT_PREFETCH_FACTOR,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
    }
    if isinstance(size, int):
        observed["batch_size"] = size
    return {name: str(value) for name, value in observed.items()}


def settings_in_force(device: str, roots: Iterable[torch.nn.Module], precision: Precision | None) -> dict[str, str]:
    """Settings of this process and of its model, by field: what a probe and a trial read alike.

    Args:
        device: Type of the device that trains.
        roots: Modules that the script calls while it trains.
        precision: In which the model was seen to compute; None = it was not seen.
    """
    return {**process_settings(device), **model_settings(roots, precision)}


def process_settings(device: str) -> dict[str, str]:
    """Threads, kernels and the allocator's share of this process, by field."""
    is_passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
    observed = {
        "intra_op_threads": str(torch.get_num_threads()),
        "omp_wait_policy": (OmpWaitPolicy.PASSIVE if is_passive else OmpWaitPolicy.DEFAULT).value,
    }
    if device == "cuda" and torch_names.is_cuda_on():
        observed["cudnn_benchmark"] = str(bool(torch.backends.cudnn.benchmark))
        read_fraction = getattr(torch.cuda, "get_per_process_memory_fraction", None)
        if read_fraction is not None:
            observed["memory_fraction"] = f"{read_fraction():.4f}"
    return observed


def model_settings(roots: Iterable[torch.nn.Module], precision: Precision | None) -> dict[str, str]:
    """Format, memory order and compilation of the modules that train, by field."""
    modules = list(roots)
    observed: dict[str, str] = {}
    if precision is not None:
        observed["precision"] = precision.value
    is_last = channels_last.is_in_force(modules)
    if is_last is not None:
        observed["channels_last"] = str(is_last)
    if modules and torch_names.HAS_CALL_SLOT:
        is_asked = any(torch_names.is_compiled(module) for module in modules)
        observed["compile"] = str(is_asked and torch_names.num_compiled_graphs() != 0)
    return observed
