"""All settings, in the order of the fields of `Settings`. A new setting needs the name of its file here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Group, OwnLine, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.data_type import Settings

NAMES = (
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "in_order",
    "multiprocessing_context",
    "worker_threads",
    "free_workers",
    "batch_size",
    "grad_accum_steps",
    "precision",
    "matmul_precision",
    "memory_fraction",
    "expandable_segments",
    "unused_blocks",
    "cudnn_benchmark",
    "cudnn_benchmark_limit",
    "channels_last",
    "sdpa_backend",
    "activation_checkpointing",
    "compile",
    "compile_mode",
    "activation_memory_budget",
    "non_blocking",
    "stream_prefetch",
    "optimizer_form",
    "gradient_as_bucket_view",
    "static_graph",
    "bucket_mb",
    "intra_op_threads",
    "omp_wait_policy",
    "keep_freed_memory",
    "keras_backend",
    "jit_compile",
    "steps_per_execution",
    "engine_threads",
    "tf_data_threads",
    "tf_data_deterministic",
    "tf_data_autotune",
    "tf_data_ram_budget",
    "tf_data_cpu_budget",
    "tf_data_prefetch",
    "tf_device_prefetch",
    "dataset_workers",
    "dataset_multiprocessing",
    "dataset_queue",
    "tf_memory_growth",
    "tf_gpu_allocator",
    "engine_memory_fraction",
    "xla_flags",
)
"""Settings and their files. A search of the folder for files would give no order, and cost every trial a listing."""
SETTINGS: tuple[Setting, ...] = tuple(import_module(f"autotune.settings.{name}").SETTING for name in NAMES)
BY_NAME: Mapping[str, Setting] = MappingProxyType({each.name: each for each in SETTINGS})

GROUP_OF_FIELD: Mapping[str, Group] = MappingProxyType({each.name: each.group for each in SETTINGS})
"""Group of every field of Settings except `knobs`, whose group is OWN."""
LOADER_FIELDS = tuple(each.name for each in SETTINGS if each.group is Group.LOADER)
DOMAINS: Mapping[str, tuple[Value, ...]] = MappingProxyType(
    {each.name: each.domain for each in SETTINGS if each.domain}
)
"""All values for searches, the same on every host: a study's distributions never change."""
INERT_ON_CPU: Mapping[str, Any] = MappingProxyType(
    {each.name: each.default for each in SETTINGS if each.needs_accelerator}
)
"""Defaults of the settings that do nothing without an accelerator."""
INERT_WITHOUT_WORKERS: Mapping[str, Any] = MappingProxyType(
    {each.name: each.default for each in SETTINGS if each.needs_workers}
)
"""Defaults of the settings that do nothing without workers."""


def variables_of(settings: Settings, base: Mapping[str, str], own: Settings | None = None) -> dict[str, str]:
    """Variables to set before Python starts.

    Args:
        settings: The settings to put in force.
        base: The variables of the user: lists of options are added to, and never replaced.
        own: The script's own settings, without need for variables; None = unknown.
    """
    variables: dict[str, str] = {}
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        if setting.is_inert is not None and setting.is_inert(settings):
            continue  # Nobody reads the variable, or another setting of the same variable holds.
        if setting.environment is not None and (own is None or value != getattr(own, setting.name)):
            variables.update(setting.environment(value, {**base, **variables}))  # two settings may share a variable
    return variables


def changes_for_load(settings: Settings, own: Settings) -> tuple[str, ...]:
    """Names of the settings that may be faster than the script's own values only beside the load of others."""
    changed = settings.differences(own)
    return tuple(each.name for each in SETTINGS if each.name in changed and each.helps_beside_load(*changed[each.name]))


def graph_kind(settings: Settings) -> tuple[Any, ...]:
    """The values of all settings that change the model's graph, in the settings' order."""
    return tuple(getattr(settings, setting.name) for setting in SETTINGS if setting.changes_graph)


def stored_kind(asked: Settings, script_settings: Settings) -> str:
    """The name of a kind of graph, as a tag on torch's stored graphs; empty for the graph of the script alone.

    Args:
        asked: The settings to put in force.
        script_settings: The script's own settings.
    """
    names = [setting.name for setting in SETTINGS if setting.changes_graph]
    if asked.differences(script_settings).keys().isdisjoint(names):
        return ""
    return " ".join(f"{name}={getattr(asked, name)}" for name in names)


def own_lines(names: Iterable[str], config: str) -> tuple[str, ...]:
    """Lines for a script that applies settings itself, in order.

    Args:
        names: Settings for the script to apply.
        config: File name of the tuned config.
    """
    needed = {line for name in names for line in BY_NAME[name].own_lines}
    if OwnLine.BACKWARD in needed and OwnLine.MICRO_BATCHES not in needed:
        needed.add(OwnLine.BATCHES)
    path = json.dumps(config, ensure_ascii=False)
    return ("import autotune", f"cfg = autotune.load({path})", *(line for line in OwnLine if line in needed))
