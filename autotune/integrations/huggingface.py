"""Hugging Face: TrainingArguments with the tuned settings."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

from autotune.api import Config
from autotune.settings import BY_NAME, LOADER_FIELDS, Group, Precision
from autotune.settings.multiprocessing_context import StartMethod


def training_arguments(config: Config, *, kind: type[Any] | None = None, **arguments: Any) -> Any:
    """`TrainingArguments` with batch, accumulation, loader and precision as tuned, for any `Trainer`.

    Threads, kernels and compilation are applied by `config.prepare(model)`.

    Args:
        config: Result of `autotune.load`.
        kind: `transformers.TrainingArguments` (the default), or a derived class.
        **arguments: Arguments of the class, as the script is written; tuned arguments replace them.

    Raises:
        ModuleNotFoundError: transformers is not installed.

    Warns:
        UserWarning: This release of transformers does not know an argument, and a setting is not applied.

    Example:
        ```python
        cfg = autotune.load("autotune.yaml", batch_size=8, grad_accum_steps=4)
        args = autotune.integrations.huggingface.training_arguments(cfg, output_dir="out", num_train_epochs=3)
        Trainer(model=cfg.prepare(model), args=args, train_dataset=data).train()
        ```
    """
    import torch
    from transformers import TrainingArguments

    kind = TrainingArguments if kind is None else kind
    tuned = _tuned(config, arguments)
    if (tuned.get("bf16") or tuned.get("fp16")) and not torch.cuda.is_available():
        tuned["use_cpu"] = True  # Without a GPU, transformers refuses both formats otherwise.
    known = {field.name for field in dataclasses.fields(kind)}
    for name in sorted(tuned.keys() - known):
        warnings.warn(
            f"{kind.__name__} of this transformers has no {name}, so {tuned.pop(name)!r} is not applied.",
            UserWarning,
            stacklevel=2,
        )
    return kind(**{**arguments, **tuned})


def _tuned(config: Config, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments decided by the config: all of a tuned config, otherwise the arguments named in the call of `load`.

    Args:
        config: Result of `autotune.load`.
        given: Arguments of the script. The tuned value replaces an argument also where the value is torch's own.
    """
    fields, settings = config.hand_over(Group.LOADER, Group.BATCH, Group.PRECISION), config.settings
    values: dict[str, Any] = {}
    for name in LOADER_FIELDS:
        argument = BY_NAME[name].frameworks.get("hf")
        if name in fields and argument is not None:
            values.update(argument(settings, False) or {})
        if name in fields and f"dataloader_{name}" in given.keys() - values.keys() and name not in settings.inert:
            value = getattr(settings, name)
            values[f"dataloader_{name}"] = None if value == StartMethod.DEFAULT else value
    if "batch_size" in fields and settings.batch_size is not None:
        values["per_device_train_batch_size"] = settings.batch_size
    if "grad_accum_steps" in fields:
        values["gradient_accumulation_steps"] = settings.grad_accum_steps
    if "precision" in fields:
        values.update(bf16=settings.precision is Precision.BF16, fp16=settings.precision is Precision.FP16)
        if settings.precision is Precision.TF32:
            values["tf32"] = True
    return values
