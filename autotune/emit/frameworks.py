"""A tuned config as arguments of training frameworks, with the settings that a framework cannot take, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.emit.tuned_config import TunedConfig
from autotune.errors import ConfigError
from autotune.model.maps import template_for
from autotune.settings import SETTINGS, Settings
from autotune.settings.engine_memory_fraction import NAME as ENGINE_MEMORY_FRACTION
from autotune.settings.keras_backend import KerasBackend
from autotune.settings.precision import HALF, LIGHTNING

YOUNG = ("ddp_static_graph", "dataloader_multiprocessing_context", "dataloader_in_order")
"""Fields of TrainingArguments that appeared in the course of transformers 5."""
_HYDRA_PATH = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=\{\}")
"""A template of --map in the form of a Hydra override."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkArguments:
    """Arguments of a framework from a tuned config."""

    values: Mapping[str, Any]
    """Plain arguments, by section for frameworks with several objects."""
    left_out: tuple[str, ...]
    """A sentence for every relevant setting outside of `values`: `name=value: what to do`."""
    notes: tuple[str, ...] = ()
    """Use of the values, and differences from the measurement."""


def huggingface_arguments(config: TunedConfig) -> FrameworkArguments:
    """Fields of `transformers.TrainingArguments` (4.46 or later)."""
    values, taken = _taken("hf", config)
    facts = config.script.facts
    if "optim" in values and (facts is None or facts.optimizer != "AdamW"):
        del values["optim"]  # The Trainer's name would bring another optimizer along.
        taken.discard("optimizer_form")
    if _trains_on_cpu(config):
        values["use_cpu"] = True  # otherwise bf16 is refused without a GPU
    notes = [
        "For transformers 4.46 or later: HfArgumentParser(TrainingArguments).parse_yaml_file(FILE) reads it; "
        "output_dir and the rest are yours."
    ]
    young = [name for name in YOUNG if name in values]
    if young:
        notes.append(
            f"Releases of transformers before 2026-08 lack {' and '.join(young)}: leave such a line out there."
        )
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=tuple(notes))


def lightning_arguments(config: TunedConfig) -> FrameworkArguments:
    """Arguments of `lightning.Trainer` (2.4 or later) under `trainer`, of the training DataLoader under `loader`."""
    devices = {
        "accelerator": "cpu" if _trains_on_cpu(config) else "gpu",
        "devices": config.provenance.world_size,
        "precision": LIGHTNING[config.settings.precision],
    }
    values, taken = _taken("lightning", config, {"trainer": devices, "loader": {}})
    notes = [
        "For Lightning 2.4 or later: Trainer(**tuned['trainer'], max_epochs=...) and "
        "DataLoader(dataset, **tuned['loader']) take it."
    ]
    if "ddp" in values:
        notes.append("Give the Trainer strategy=DDPStrategy(**tuned['ddp']) too.")
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=tuple(notes))


def accelerate_arguments(config: TunedConfig) -> FrameworkArguments:
    """Arguments of `accelerate.Accelerator` (1.1 or later), of its plugins, and of the training DataLoader."""
    accelerator: dict[str, Any] = {"cpu": True} if _trains_on_cpu(config) else {}
    accelerator["mixed_precision"] = "no"
    values, taken = _taken("accelerate", config, {"accelerator": accelerator, "dataloader_config": {}, "loader": {}})
    objects = ["dataloader_config=DataLoaderConfiguration(**tuned['dataloader_config'])"]
    if "dynamo_plugin" in values:
        objects.append("dynamo_plugin=TorchDynamoPlugin(**tuned['dynamo_plugin'])")
    if "ddp" in values:
        objects.append("kwargs_handlers=[DistributedDataParallelKwargs(**tuned['ddp'])]")
    is_regional = "use_regional_compilation" in values.get("dynamo_plugin", {})
    release = "1.7" if is_regional else "1.2" if "dynamo_plugin" in values else "1.1"
    notes = (
        f"For Accelerate {release} or later: Accelerator(**tuned['accelerator'], "
        f"{', '.join(objects)}) and DataLoader(dataset, **tuned['loader']) take it.",
        f"Start it with: accelerate launch --num_processes {config.provenance.world_size}",
    )
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=notes)


def deepspeed_arguments(config: TunedConfig) -> FrameworkArguments:
    """A DeepSpeed configuration with two of three batch sizes; the third follows from the number of processes."""
    values, taken = _taken("deepspeed", config, {each.value: {"enabled": False} for each in HALF})
    notes = ["Add the optimizer and what else the training needs; autotune was not asked about ZeRO."]
    if config.settings.precision in HALF:
        notes.append("DeepSpeed casts the model itself; what was measured is an autocast region.")
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=tuple(notes))


def hydra_arguments(config: TunedConfig) -> FrameworkArguments:
    """A group file for Hydra: all settings under `autotune`, and settings mapped to Hydra keys under these keys too.

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
    taken = {setting.name for setting in SETTINGS if not setting.is_set_before_start}
    taken |= {f"knobs.{name}" for name, _ in settings.knobs}
    return FrameworkArguments(values=values, left_out=_left_out(config, taken), notes=notes)


def _taken(
    framework: str, config: TunedConfig, first: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], set[str]]:
    """Arguments that a framework takes, and the settings behind them.

    Args:
        framework: Name of the framework in the registry of settings.
        config: The tuned config.
        first: Arguments to add to, or to override.
    """
    values, taken = dict(first or {}), set()
    for setting in SETTINGS:
        argument = setting.frameworks.get(framework)
        given = argument(config.settings, _trains_on_cpu(config)) if argument is not None else None
        if given is None:
            continue
        taken.add(setting.name)
        for name, value in given.items():
            values[name] = {**values[name], **value} if isinstance(values.get(name), dict) else value
    return values, taken


def keras_left_out(config: TunedConfig) -> tuple[str, ...]:
    """A sentence for every tuned setting of a Keras script that no variable of the environment carries."""
    changed = config.settings.differences(config.script.natural)
    needs_none = {each.name for each in SETTINGS if each.environment or each.keras is None or each.name not in changed}
    return _left_out(config, needs_none - (without_variable(config) & changed.keys()))


def without_variable(config: TunedConfig) -> frozenset[str]:
    """Names of settings with a variable that the tuned engine of Keras does not read."""
    return frozenset(() if config.settings.keras_backend is KerasBackend.JAX else (ENGINE_MEMORY_FRACTION,))


FRAMEWORKS: Mapping[str, Callable[[TunedConfig], FrameworkArguments]] = {
    "hf": huggingface_arguments,
    "lightning": lightning_arguments,
    "accelerate": accelerate_arguments,
    "deepspeed": deepspeed_arguments,
    "hydra": hydra_arguments,
}
"""By name for `autotune export --to`."""


def _trains_on_cpu(config: TunedConfig) -> bool:
    facts = config.script.facts
    # Without facts: only a CPU has no share of a device's memory.
    return facts.device == "cpu" if facts is not None else config.memory.fraction is None


def _left_out(config: TunedConfig, taken: set[str]) -> tuple[str, ...]:
    """A sentence for every setting that the framework does not take, though tuned or different from torch's default."""
    settings = config.settings.canonical(device_is_cpu=_trains_on_cpu(config))
    changed, plain = settings.differences(config.script.natural), settings.to_dict()
    of_torch = Settings(intra_op_threads=settings.intra_op_threads).to_dict()
    plain["memory_fraction"] = min(settings.memory_fraction, config.memory.fraction or 1.0)
    sentences = []
    for setting in SETTINGS:
        name = setting.name
        matters = name in changed or plain[name] != of_torch[name]
        if matters and name not in taken and plain[name] is not None:
            how = (plain[name] is False and setting.by_hand_off) or setting.by_hand
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
    """A knob's value as on Hydra's command line: text that reads like a number or a boolean is converted."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
