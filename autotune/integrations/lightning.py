"""Lightning: a Trainer under the tuned settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from autotune.api import Config
from autotune.settings import Group
from autotune.settings.precision import LIGHTNING

OWN_WEIGHTS = ("bf16-true", "16-true", "64-true", 64, "64", "transformer-engine", "transformer-engine-float16")
"""Precisions for the format of the weights too; a change would train another model."""


def trainer(config: Config, **arguments: Any) -> Any:
    """A `Trainer` with tuned accumulation and precision; from `pytorch_lightning` if the script imports that alone.

    Build the training loader from the same config, by `DataLoader(data, **config.loader_kwargs())`: the Trainer refuses
    a batch size other than the tuned size. Threads, kernels and compilation are applied by `config.prepare(module)`.

    Args:
        config: Result of `autotune.load`.
        **arguments: Arguments of the Trainer, as the script is written. Tuned values replace `accumulate_grad_batches`
            and `precision`; a precision for the format of the weights too, such as `bf16-true`, stays.

    Raises:
        ModuleNotFoundError: Lightning is not installed.

    Example:
        ```python
        cfg = autotune.load("autotune.yaml", batch_size=64, grad_accum_steps=1)
        loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())
        autotune.integrations.lightning.trainer(cfg, max_epochs=90).fit(module, loader)
        ```
    """
    lightning = _lightning()
    keeps_precision = arguments.get("precision") in OWN_WEIGHTS
    fields = config.hand_over(Group.BATCH, *(() if keeps_precision else (Group.PRECISION,)))
    settings = config.settings
    if "grad_accum_steps" in fields:
        arguments["accumulate_grad_batches"] = settings.grad_accum_steps
    if "precision" in fields:
        arguments["precision"] = LIGHTNING[settings.precision]
    callbacks = arguments.pop("callbacks", None) or []
    callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    return lightning.Trainer(**arguments, callbacks=[*callbacks, _loader_check(lightning, config)])


def _lightning() -> Any:
    """The script's Lightning package: the Trainer of one package refuses modules of the other."""
    is_old_name = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    return import_module("pytorch_lightning" if is_old_name else "lightning.pytorch")


def _loader_check(lightning: Any, config: Config) -> Any:
    """A callback for `check_loader` on the training loaders before the first step."""

    def on_train_start(_callback: Any, trainer: Any, _module: Any) -> None:
        for loader in single_loaders(trainer.train_dataloader):
            config.check_loader(loader)

    return type("TunedLoaderCheck", (lightning.Callback,), {"on_train_start": on_train_start})()


def single_loaders(loaders: Any) -> list[Any]:
    """The loaders in a Trainer's argument: a loader, or nested lists and mappings of loaders."""
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, (list, tuple)):
        return [single for loader in loaders for single in single_loaders(loader)]
    return [loaders]
