"""Lightning: a Trainer under the tuned settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from autotune.api import Config
from autotune.emit.frameworks import LIGHTNING_PRECISION
from autotune.settings import Group

OWN_WEIGHTS = ("bf16-true", "16-true", "64-true", 64, "64", "transformer-engine", "transformer-engine-float16")
"""Precisions that decide the format of the weights too: what they train is not ours to change."""


def trainer(config: Config, **arguments: Any) -> Any:
    """A `Trainer` that accumulates and computes as tuned; `pytorch_lightning`'s where the script imported only that.

    The training loader has to be built from the same config, by `DataLoader(data, **config.loader_kwargs())`: the
    Trainer refuses to train with another batch size than the tuned one. Threads, kernels and compilation are applied
    by `config.prepare(module)`.

    Args:
        config: What `autotune.load` gave.
        **arguments: Of the Trainer, as the script is written. Of `accumulate_grad_batches` and `precision` the tuned
            ones take the place, where there are any; a precision that also decides the format of the weights, such as
            `bf16-true`, stays.

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
        arguments["precision"] = LIGHTNING_PRECISION[settings.precision]
    callbacks = arguments.pop("callbacks", None) or []
    callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    return lightning.Trainer(**arguments, callbacks=[*callbacks, _loader_check(lightning, config)])


def _lightning() -> Any:
    """The package that the script uses: modules of one are none for the Trainer of the other."""
    is_old_name = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    return import_module("pytorch_lightning" if is_old_name else "lightning.pytorch")


def _loader_check(lightning: Any, config: Config) -> Any:
    """A callback that looks at the training loader before the first step."""

    def on_train_start(_callback: Any, trainer: Any, _module: Any) -> None:
        for loader in single_loaders(trainer.train_dataloader):
            config.check_loader(loader)

    return type("TunedLoaderCheck", (lightning.Callback,), {"on_train_start": on_train_start})()


def single_loaders(loaders: Any) -> list[Any]:
    """The loaders in what a Trainer takes: one, or lists and mappings of them."""
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, (list, tuple)):
        return [single for loader in loaders for single in single_loaders(loader)]
    return [loaders]
