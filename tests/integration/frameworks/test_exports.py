"""What `autotune export` writes for a framework, given to the framework itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.emit.export import export
from autotune.emit.tuned_config import TunedConfig
from autotune.settings import Precision, Settings
from tests.unit.emit.example import FACTS, TUNED, tuned_config

pytestmark = pytest.mark.slow
BUILD = Path(__file__).with_name("build.py")
OF_RANKS = {"bucket_mb": 50, "static_graph": True, "gradient_as_bucket_view": True}
ON_CPU = replace(FACTS, device="cpu")


def cpu_config(**changes: Any) -> TunedConfig:
    settings = {**TUNED.to_dict(), "pin_memory": False, "memory_fraction": 1.0, **changes}
    return tuned_config(settings=Settings.from_dict(settings), script_facts=ON_CPU)


def built(name: str, module: str, config: TunedConfig, folder: Path) -> dict[str, Any]:
    """What the framework's objects hold that were built from the exported file, in a process of their own."""
    pytest.importorskip(module, reason=f"{module} is not installed; `make test-all` installs it")
    path = folder / f"exported.{'json' if name == 'deepspeed' else 'yaml'}"
    path.write_text(export(config, name))
    command = [sys.executable, "-W", "ignore", str(BUILD), name, str(path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def test_training_arguments_hold_the_tuned_settings(tmp_path: Path) -> None:
    config = cpu_config(non_blocking=True, optimizer_form="fused", bucket_mb=50, activation_checkpointing=True)
    config = replace(config, script=replace(config.script, facts=replace(ON_CPU, optimizer="AdamW")))
    made = built("hf", "transformers", config, tmp_path)
    assert made == {
        "train_batch_size": 16,
        "gradient_accumulation_steps": 4,
        "num_workers": 4,
        "prefetch_factor": 4,
        "persistent_workers": True,
        "pin_memory": False,
        "bf16": True,
        "fp16": False,
        "tf32": None,
        "torch_compile": False,
        "use_cpu": True,
        "non_blocking": True,
        "checkpointing": True,
        "torch_compile_mode": None,
        "optim": "adamw_torch_fused",
        "ddp_bucket_cap_mb": 50,
    }


def test_training_arguments_take_settings_without_workers(tmp_path: Path) -> None:
    changes = {"num_workers": 0, "precision": "fp32", "compile": True, "compile_mode": "max-autotune-no-cudagraphs"}
    made = built("hf", "transformers", cpu_config(**changes), tmp_path)
    assert (made["num_workers"], made["prefetch_factor"], made["persistent_workers"]) == (0, None, False)
    assert (made["bf16"], made["fp16"], made["torch_compile"]) == (False, False, True)
    assert made["torch_compile_mode"] == "max-autotune-no-cudagraphs"


@pytest.mark.parametrize(("precision", "name"), [("bf16", "bf16-mixed"), ("fp32", "32-true")])
def test_the_trainer_and_the_loader_of_lightning_hold_the_tuned_settings(
    precision: str, name: str, tmp_path: Path
) -> None:
    assert built("lightning", "lightning", cpu_config(precision=precision, **OF_RANKS), tmp_path) == {
        "precision": name,
        "accumulate_grad_batches": 4,
        "num_devices": 1,
        "accelerator": "CPUAccelerator",
        "ddp": {"bucket_cap_mb": 50, "static_graph": True, "gradient_as_bucket_view": True},
        "batch_size": 16,
        "num_workers": 4,
        "prefetch_factor": 4,
        "persistent_workers": True,
        "pin_memory": False,
    }


def test_the_accelerator_holds_the_tuned_settings(tmp_path: Path) -> None:
    config = cpu_config(num_workers=0, compile=True, compile_mode="regional", non_blocking=True, **OF_RANKS)
    assert built("accelerate", "accelerate", config, tmp_path) == {
        "mixed_precision": "bf16",
        "gradient_accumulation_steps": 4,
        "device": "cpu",
        "dynamo_backend": "INDUCTOR",
        "dynamo_mode": "default",
        "is_regional": True,
        "ddp": {"bucket_cap_mb": 50, "static_graph": True, "gradient_as_bucket_view": True},
        "non_blocking": True,
        "batch_size": 16,
        "num_workers": 0,
        "prefetch_factor": None,
        "persistent_workers": False,
        "pin_memory": False,
    }


@pytest.mark.parametrize("precision", list(Precision))
def test_the_config_of_deepspeed_holds_the_tuned_settings(precision: Precision, tmp_path: Path) -> None:
    config = tuned_config(settings=replace(TUNED, precision=precision))
    assert built("deepspeed", "deepspeed", config, tmp_path) == {
        "train_micro_batch_size_per_gpu": 16,
        "gradient_accumulation_steps": 4,
        "train_batch_size": 64,
        "bf16": precision is Precision.BF16,
        "fp16": precision is Precision.FP16,
    }


def test_hydra_composes_the_tuned_settings_over_the_scripts_own(tmp_path: Path) -> None:
    maps = {"batch_size": "train.batch_size={}", "storage": "++data.storage={}", "num_workers": "--workers={}"}
    made = built("hydra", "hydra", tuned_config(script_maps=maps), tmp_path)
    assert made["train"] == {"batch_size": 16, "lr": 0.1}
    assert made["data"] == {"storage": "no"}
    assert Settings.from_dict(made["autotune"]) == TUNED
    assert made["changed"] == 7
