"""`tf_data_cpu_budget`: cores that a tf.data dataset counts on when it tunes itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autotune.settings.keras_group import of_keras
from autotune.settings.setting import Effect, Features, Group, KerasSeams, OwnLine, Setting, at_most_per_core
from autotune.settings.tf_data_threads import dataset_of, why_no_dataset, with_option


def _at_fit(value: Any, fit: dict[str, Any]) -> None:
    def change(options: Any) -> None:
        options.autotune.cpu_budget = value

    with_option(fit, change)


def read_cpu_budget(fit: Mapping[str, Any]) -> int | None:
    """The budget, 0 for all cores; None without a dataset."""
    dataset = dataset_of(fit)
    return None if dataset is None else int(dataset.options().autotune.cpu_budget or 0)


SETTING = Setting(
    name="tf_data_cpu_budget",
    group=Group.DATA,
    default=0,
    takes_effect="options of the dataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no tf.data dataset; more than the cores",
    frameworks_of_scripts=("keras",),
    domain=(0, 1, 2, 4, 8, 16, 32, 64),
    bounds=(0, 4096),
    most_searched=4096,
    is_inert=lambda own: not own.tf_data_autotune,
    own=of_keras("tf_data_cpu_budget"),
    refused=why_no_dataset,
    is_tried=at_most_per_core(1),
    cpu_turn=13,
    effect=Effect.LOADER,
    features=Features(loader=lambda own: (math.log2(1 + own.tf_data_cpu_budget), 1.0 * (own.tf_data_cpu_budget == 0))),
    keras=KerasSeams(at_fit=_at_fit, read=lambda _, fit: read_cpu_budget(fit)),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="set options.autotune.cpu_budget of the dataset",
)
