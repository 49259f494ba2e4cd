"""`tf_data_ram_budget`: MiB of host memory for the buffers of a tf.data dataset that tunes itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotune.settings.keras_group import of_keras
from autotune.settings.setting import Effect, Features, Group, KerasSeams, Memory, OwnLine, Setting
from autotune.settings.tf_data_threads import dataset_of, why_no_dataset, with_option

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase

MIB = 1 << 20
NAME = "tf_data_ram_budget"


def _pointless(case: SearchCase) -> str:
    return "" if NAME in case.asked else "it saves the host's memory, and makes nothing faster; ask with --set"


def _at_fit(value: Any, fit: dict[str, Any]) -> None:
    def change(options: Any) -> None:
        options.autotune.ram_budget = value * MIB

    with_option(fit, change)


def read_ram_budget(fit: Mapping[str, Any]) -> int | None:
    """The budget in whole MiB, rounded up, 0 for tf.data's own choice; None without a dataset."""
    dataset = dataset_of(fit)
    return None if dataset is None else math.ceil((dataset.options().autotune.ram_budget or 0) / MIB)


SETTING = Setting(
    name=NAME,
    group=Group.DATA,
    default=0,
    takes_effect="options of the dataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no tf.data dataset; unless asked for",
    frameworks_of_scripts=("keras",),
    domain=(0, 256, 1024, 4096, 16384),
    bounds=(0, 1 << 24),
    most_searched=1 << 24,
    is_inert=lambda own: not own.tf_data_autotune,
    own=of_keras("tf_data_ram_budget"),
    refused=why_no_dataset,
    pointless=_pointless,
    is_foreign=lambda case: bool(why_no_dataset(case)),
    effect=Effect.LOADER,
    memory=Memory.EITHER,
    is_memory_of_host=True,
    features=Features(loader=lambda own: (math.log2(1 + own.tf_data_ram_budget), 1.0 * (own.tf_data_ram_budget == 0))),
    keras=KerasSeams(at_fit=_at_fit, read=lambda _, fit: read_ram_budget(fit)),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="set options.autotune.ram_budget of the dataset, in bytes",
)
