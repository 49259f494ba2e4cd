"""The settings of a trial, with a file for each setting: values, refusals, effects, application and reading back."""

from autotune.settings.compile_mode import CompileMode
from autotune.settings.data_type import BOOLEAN_FIELDS, BOUNDS, Settings, text_of
from autotune.settings.omp_wait_policy import OmpWaitPolicy
from autotune.settings.precision import Precision
from autotune.settings.prefetch_factor import DEFAULT_PREFETCH_FACTOR
from autotune.settings.registry import (
    BY_NAME,
    DOMAINS,
    GROUP_OF_FIELD,
    INERT_ON_CPU,
    INERT_WITHOUT_WORKERS,
    LOADER_FIELDS,
    SETTINGS,
    changes_for_load,
    graph_kind,
    own_lines,
    stored_kind,
    variables_of,
)
from autotune.settings.setting import Group, KerasSeams, Setting, Value

__all__ = [
    "BOOLEAN_FIELDS",
    "BOUNDS",
    "BY_NAME",
    "DEFAULT_PREFETCH_FACTOR",
    "DOMAINS",
    "GROUP_OF_FIELD",
    "INERT_ON_CPU",
    "INERT_WITHOUT_WORKERS",
    "LOADER_FIELDS",
    "SETTINGS",
    "CompileMode",
    "Group",
    "KerasSeams",
    "OmpWaitPolicy",
    "Precision",
    "Setting",
    "Settings",
    "Value",
    "changes_for_load",
    "graph_kind",
    "own_lines",
    "stored_kind",
    "text_of",
    "variables_of",
]
