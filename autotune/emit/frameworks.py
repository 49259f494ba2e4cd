"""A tuned config as the arguments of training frameworks, with what each of them cannot take, by name. Plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.emit.tuned_config import TunedConfig
from autotune.errors import ConfigError
from autotune.model.maps import template_for
from autotune.settings import GROUP_OF_FIELD, LOADER_FIELDS, Precision, Settings

LIGHTNING_PRECISION: Mapping[Precision, str] = {
    Precision.FP32: "32-true",
    Precision.TF32: "32-true",
    Precision.BF16: "bf16-mixed",
    Precision.FP16: "16-mixed",
}
"""Names that Lightning's Trainer has; TF32 is torch's affair there."""
_HYDRA_PATH = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=\{\}")
"""A template of --map that is an override of Hydra's."""
_IN_THE_LOADER = "pass it to the DataLoader"
_BEFORE_PYTHON = "set {} before Python starts"
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(LOADER_FIELDS, _IN_THE_LOADER),
    "batch_size": _IN_THE_LOADER,
    "grad_accum_steps": "accumulate in the training loop",
    "precision": 'call torch.set_float32_matmul_precision("high")',
    "memory_fraction": "call torch.cuda.set_per_process_memory_fraction",
    "expandable_segments": _BEFORE_PYTHON.format("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    "cudnn_benchmark": "set torch.backends.cudnn.benchmark",
    "channels_last": "call model.to(memory_format=torch.channels_last)",
    "compile": "call model.compile()",
    "non_blocking": "copy with x.to(device, non_blocking=True)",
    "stream_prefetch": "copy in a loop of the script's own",
    "intra_op_threads": _BEFORE_PYTHON.format("OMP_NUM_THREADS"),
    "omp_wait_policy": _BEFORE_PYTHON.format("OMP_WAIT_POLICY=PASSIVE"),
}
"""How a setting is put in force where the framework has no argument for it."""
_UNDONE: Mapping[str, str] = {
    "channels_last": "leave out model.to(memory_format=torch.channels_last)",
    "compile": "leave out model.compile()",
    "non_blocking": "copy with x.to(device)",
    "expandable_segments": "leave expandable_segments out of PYTORCH_CUDA_ALLOC_CONF",
}
"""How a setting of the script's own is switched off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkArguments:
    """What a framework takes of a tuned config."""

    values: Mapping[str, Any]
    """Plain arguments, by section where the framework has several objects to give them to."""
    left_out: tuple[str, ...]
    """A sentence for every setting that matters here and is not in `values`: `name=value: what to do`."""
    notes: tuple[str, ...] = ()
    """How the values are used, and what differs from what was measured."""


def huggingface_arguments(config: TunedConfig) -> FrameworkArguments:
    """Fields of `transformers.TrainingArguments` (4.46 or later)."""
    settings, is_cpu = config.settings, _trains_on_cpu(config)
    values: dict[str, Any] = {}
    if settings.batch_size is not None:
        values["per_device_train_batch_size"] = settings.batch_size
    values["gradient_accumulation_steps"] = settings.grad_accum_steps
    values.update({f"dataloader_{name}": value for name, value in loader_arguments(settings, with_batch=False).items()})
    values.update(bf16=settings.precision is Precision.BF16, fp16=settings.precision is Precision.FP16)
    if is_cpu:
        values["use_cpu"] = True  # without it bf16 is refused where there is no GPU
    elif settings.precision in (Precision.FP32, Precision.TF32):
        # Said for fp32 too: with torch_compile the Trainer turns TF32 on by itself.
        values["tf32"] = settings.precision is Precision.TF32
    if settings.compile:
        values["torch_compile"] = True
    if settings.non_blocking:
        values["accelerator_config"] = {"non_blocking": True}
    taken = {*LOADER_FIELDS, "batch_size", "grad_accum_steps", "precision", "compile", "non_blocking"}
    note = (
        "For transformers 4.46 or later: HfArgumentParser(TrainingArguments).parse_yaml_file(FILE) reads it; "
        "output_dir and the rest are yours."
    )
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=(note,))


def lightning_arguments(config: TunedConfig) -> FrameworkArguments:
    """Arguments of `lightning.Trainer` (2.4 or later) under `trainer`, of the training DataLoader under `loader`."""
    settings, is_cpu = config.settings, _trains_on_cpu(config)
    trainer: dict[str, Any] = {
        "accelerator": "cpu" if is_cpu else "gpu",
        "devices": config.provenance.world_size,
        "precision": LIGHTNING_PRECISION[settings.precision],
        "accumulate_grad_batches": settings.grad_accum_steps,
    }
    if not is_cpu:
        trainer["benchmark"] = settings.cudnn_benchmark
    # Lightning copies batches with non_blocking by itself.
    taken = {*LOADER_FIELDS, "batch_size", "grad_accum_steps", "cudnn_benchmark", "non_blocking"}
    taken |= {"precision"} if settings.precision is not Precision.TF32 else set()
    note = (
        "For Lightning 2.4 or later: Trainer(**tuned['trainer'], max_epochs=...) and "
        "DataLoader(dataset, **tuned['loader']) take it."
    )
    values = {"trainer": trainer, "loader": loader_arguments(settings)}
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=(note,))


def accelerate_arguments(config: TunedConfig) -> FrameworkArguments:
    """Arguments of `accelerate.Accelerator` (1.1 or later), its DataLoaderConfiguration and the training DataLoader."""
    settings, is_cpu = config.settings, _trains_on_cpu(config)
    mixed = settings.precision if settings.precision in (Precision.BF16, Precision.FP16) else None
    accelerator: dict[str, Any] = {
        "gradient_accumulation_steps": settings.grad_accum_steps,
        "mixed_precision": mixed.value if mixed is not None else "no",
    }
    if is_cpu:
        accelerator["cpu"] = True
    if settings.compile:
        accelerator["dynamo_backend"] = "inductor"
    values = {
        "accelerator": accelerator,
        "dataloader_config": {"non_blocking": settings.non_blocking},
        "loader": loader_arguments(settings),
    }
    taken = {*LOADER_FIELDS, "batch_size", "grad_accum_steps", "compile", "non_blocking"}
    taken |= {"precision"} if settings.precision is not Precision.TF32 else set()
    notes = (
        "For Accelerate 1.1 or later: Accelerator(**tuned['accelerator'], "
        "dataloader_config=DataLoaderConfiguration(**tuned['dataloader_config'])) "
        "and DataLoader(dataset, **tuned['loader']) take it.",
        f"Start it with: accelerate launch --num_processes {config.provenance.world_size}",
    )
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=notes)


def deepspeed_arguments(config: TunedConfig) -> FrameworkArguments:
    """A DeepSpeed configuration; of its three batch sizes two are given, the third follows from the processes."""
    settings = config.settings
    values: dict[str, Any] = {}
    if settings.batch_size is not None:
        values["train_micro_batch_size_per_gpu"] = settings.batch_size
    values["gradient_accumulation_steps"] = settings.grad_accum_steps
    values["bf16"] = {"enabled": settings.precision is Precision.BF16}
    values["fp16"] = {"enabled": settings.precision is Precision.FP16}
    taken = {"batch_size", "grad_accum_steps"} | ({"precision"} if settings.precision is not Precision.TF32 else set())
    notes = ["Add the optimizer and what else the training needs; autotune was not asked about ZeRO."]
    if settings.precision in (Precision.BF16, Precision.FP16):
        notes.append("DeepSpeed casts the model itself; what was measured is an autocast region.")
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=tuple(notes))


def hydra_arguments(config: TunedConfig) -> FrameworkArguments:
    """A group file for Hydra: all settings under `autotune`, and those that the script maps to Hydra keys there too.

    Raises:
        ConfigError: Two keys of the script exclude each other, or a value would be an interpolation.
    """
    settings = config.settings
    values: dict[str, Any] = {"autotune": settings.to_dict()}
    mapped = {**settings.to_dict(), **dict(settings.knobs)}
    for name, template in config.script.maps.items():
        path = _HYDRA_PATH.fullmatch(template)
        if path is not None and mapped.get(name) not in (None, ""):
            _put(values, path[1].split("."), _unquoted(mapped[name]) if name in dict(settings.knobs) else mapped[name])
    for name, value in settings.knobs:
        if "${" in value or value == "???":
            raise ConfigError(f"The knob {name} is {value!r}, which Hydra would not take for text.", "Give it another.")
    notes = (
        "As conf/autotune/best.yaml it is used by: python train.py +autotune=best",
        "The script applies what stands under `autotune`; single values are given by ++autotune.num_workers=4.",
    )
    taken = set(GROUP_OF_FIELD) - {"expandable_segments", "omp_wait_policy"}
    taken |= {f"knobs.{name}" for name, _ in settings.knobs}
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=notes)


def loader_arguments(settings: Settings, *, with_batch: bool = True) -> dict[str, Any]:
    """Keyword arguments of a DataLoader; what torch refuses without workers is not among them."""
    values: dict[str, Any] = {"num_workers": settings.num_workers, "pin_memory": settings.pin_memory}
    if with_batch and settings.batch_size is not None:
        values = {"batch_size": settings.batch_size, **values}
    if settings.num_workers > 0:
        values.update(prefetch_factor=settings.prefetch_factor, persistent_workers=settings.persistent_workers)
    return values


FRAMEWORKS: Mapping[str, Callable[[TunedConfig], FrameworkArguments]] = {
    "hf": huggingface_arguments,
    "lightning": lightning_arguments,
    "accelerate": accelerate_arguments,
    "deepspeed": deepspeed_arguments,
    "hydra": hydra_arguments,
}
"""By the name that `autotune export --to` takes."""


def _trains_on_cpu(config: TunedConfig) -> bool:
    facts = config.script.facts
    # Without facts: only a CPU has no share of a device's memory.
    return facts.device == "cpu" if facts is not None else config.memory.fraction is None


def _left_out(config: TunedConfig, taken: set[str]) -> tuple[str, ...]:
    """What is not taken although it was tuned, or is not what torch does by itself."""
    settings = config.settings.canonical(device_is_cpu=_trains_on_cpu(config))
    changed, plain = settings.differences(config.script.natural), settings.to_dict()
    of_torch = Settings(intra_op_threads=settings.intra_op_threads).to_dict()
    plain["memory_fraction"] = min(settings.memory_fraction, config.memory.fraction or 1.0)
    sentences = []
    for name in GROUP_OF_FIELD:
        matters = name in changed or plain[name] != of_torch[name]
        if matters and name not in taken and plain[name] is not None:
            how = _UNDONE.get(name, _ELSEWHERE[name]) if plain[name] is False else _ELSEWHERE[name]
            sentences.append(f"{name}={_said(plain[name])}: {how}.")
    for name, value in settings.knobs:
        words = template_for(name, value, config.script.maps)
        how = f"an argument of the script, {words}" if words else "a knob of the script"
        if value and f"knobs.{name}" not in taken:
            sentences.append(f"{name}={value}: {how}.")
    if config.settings.batch_size is None:
        sentences.append("batch_size: it is the script's own, which was not seen.")
    return tuple(sentences)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    """Puts a value at a path of nested mappings.

    Raises:
        ConfigError: A part of the path is a value already.
    """
    inner = values
    for part in path[:-1]:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"The key {'.'.join(path)} of Hydra lies below {part}, which is a value.",
                "Correct the maps of the tuned config: one of the two keys cannot be the script's.",
            )
    inner[path[-1]] = value


def _unquoted(text: str) -> Any:
    """A knob's value as Hydra takes it on its command line: a number or a boolean where it reads like one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
