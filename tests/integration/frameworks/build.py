"""Builds the real objects of a framework from an exported file, and prints what they hold as JSON.

A process of its own for each: frameworks change the environment, keep state for the process, and warn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml


def sections(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def of_loader(arguments: dict[str, Any]) -> dict[str, Any]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.zeros(64, 1)), **arguments)
    names = ("batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
    return {name: getattr(loader, name) for name in names}


def hf(path: Path) -> dict[str, Any]:
    from transformers import HfArgumentParser, TrainingArguments

    (arguments,) = HfArgumentParser(TrainingArguments).parse_yaml_file(path)
    names = ("bf16", "fp16", "tf32", "torch_compile", "use_cpu", "train_batch_size", "gradient_accumulation_steps")
    loader = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
    return {
        **{name: getattr(arguments, name) for name in names},
        **{name: getattr(arguments, f"dataloader_{name}") for name in loader},
        "non_blocking": arguments.accelerator_config.non_blocking,
        # Later releases move the value to another name.
        "checkpointing": getattr(arguments, "activation_checkpointing", False) or arguments.gradient_checkpointing,
        **{name: getattr(arguments, name) for name in ("torch_compile_mode", "optim", "ddp_bucket_cap_mb")},
    }


def lightning(path: Path) -> dict[str, Any]:
    from lightning import Trainer

    values = sections(path)
    trainer = Trainer(**values["trainer"], max_epochs=1, logger=False, enable_checkpointing=False)
    return {
        "precision": trainer.precision,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "num_devices": trainer.num_devices,
        "ddp": wrapped_by(values["ddp"]) if "ddp" in values else {},
        "accelerator": type(trainer.accelerator).__name__,
        **of_loader(values["loader"]),
    }


def wrapped_by(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments that Lightning's strategy gives to DistributedDataParallel."""
    from lightning.pytorch.strategies import DDPStrategy

    return dict(DDPStrategy(**arguments)._ddp_kwargs)


def accelerate(path: Path) -> dict[str, Any]:
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, DistributedDataParallelKwargs, TorchDynamoPlugin

    values = sections(path)
    ranks = DistributedDataParallelKwargs(**values.get("ddp", {}))
    made = Accelerator(
        **values["accelerator"],
        dataloader_config=DataLoaderConfiguration(**values["dataloader_config"]),
        dynamo_plugin=TorchDynamoPlugin(**values.get("dynamo_plugin", {})),
        kwargs_handlers=[ranks],
    )
    return {
        "mixed_precision": made.mixed_precision,
        "gradient_accumulation_steps": made.gradient_accumulation_steps,
        "device": made.device.type,
        "dynamo_backend": str(made.state.dynamo_plugin.backend.value),
        "dynamo_mode": made.state.dynamo_plugin.mode,
        "is_regional": made.state.dynamo_plugin.use_regional_compilation,
        "ddp": made.ddp_handler.to_kwargs(),
        "non_blocking": made.non_blocking,
        **of_loader(values["loader"]),
    }


def deepspeed(path: Path) -> dict[str, Any]:
    from deepspeed.runtime.config import DeepSpeedConfig

    made = DeepSpeedConfig(str(path))
    return {
        "train_micro_batch_size_per_gpu": made.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": made.gradient_accumulation_steps,
        "train_batch_size": made.train_batch_size,
        "bf16": made.bfloat16_config.enabled,
        "fp16": made.float16_config.enabled,
    }


def hydra(path: Path) -> dict[str, Any]:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    folder = path.parent / "conf"
    (folder / "autotune").mkdir(parents=True)
    (folder / "train.yaml").write_text("train: {batch_size: 64, lr: 0.1}\nautotune: {num_workers: 0}\n")
    (folder / "autotune" / "best.yaml").write_text(path.read_text())
    with initialize_config_dir(str(folder), version_base="1.3"):
        made = compose("train", overrides=["+autotune=best"])
        changed = compose("train", overrides=["+autotune=best", "++autotune.num_workers=7"])
    values = OmegaConf.to_container(made, resolve=True)
    assert isinstance(values, dict)
    return {**values, "changed": changed.autotune.num_workers}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2])), default=str))
