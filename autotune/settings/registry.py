"""All settings, in the order of the fields of `Settings`. A new setting needs a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autotune.settings import (
    batch_size,
    channels_last,
    cudnn_benchmark,
    expandable_segments,
    grad_accum_steps,
    intra_op_threads,
    memory_fraction,
    non_blocking,
    num_workers,
    omp_wait_policy,
    persistent_workers,
    pin_memory,
    precision,
    prefetch_factor,
    stream_prefetch,
)
from autotune.settings import compile as compiled
from autotune.settings.setting import Group, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.data_type import Settings

SETTINGS: tuple[Setting, ...] = (
    num_workers.SETTING,
    prefetch_factor.SETTING,
    pin_memory.SETTING,
    persistent_workers.SETTING,
    batch_size.SETTING,
    grad_accum_steps.SETTING,
    precision.SETTING,
    memory_fraction.SETTING,
    expandable_segments.SETTING,
    cudnn_benchmark.SETTING,
    channels_last.SETTING,
    compiled.SETTING,
    non_blocking.SETTING,
    stream_prefetch.SETTING,
    intra_op_threads.SETTING,
    omp_wait_policy.SETTING,
)
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
"""Settings that do nothing without an accelerator, and their defaults."""
INERT_WITHOUT_WORKERS: Mapping[str, Any] = MappingProxyType(
    {each.name: each.default for each in SETTINGS if each.needs_workers}
)
"""Settings that do nothing without workers, and their defaults."""


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
        if setting.environment is not None and (own is None or value != getattr(own, setting.name)):
            variables.update(setting.environment(value, base))
    return variables
