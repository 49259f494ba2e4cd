"""`tf_data_autotune`: whether tf.data chooses its parallelism and buffers while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.settings.keras_group import of_keras
from autotune.settings.setting import Effect, Features, Group, KerasSeams, Memory, OwnLine, Setting, switched
from autotune.settings.tf_data_threads import dataset_of, why_no_dataset, with_option


def _at_fit(value: Any, fit: dict[str, Any]) -> None:
    def change(options: Any) -> None:
        options.autotune.enabled = value

    with_option(fit, change)


def read_autotune(fit: Mapping[str, Any]) -> bool | None:
    """Whether the dataset tunes itself; None without a dataset."""
    dataset = dataset_of(fit)
    return None if dataset is None else dataset.options().autotune.enabled is not False


SETTING = Setting(
    name="tf_data_autotune",
    group=Group.DATA,
    default=True,
    takes_effect="options of the dataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no tf.data dataset",
    frameworks_of_scripts=("keras",),
    domain=(True, False),
    own=of_keras("tf_data_autotune"),
    refused=why_no_dataset,
    cpu_turn=12,
    effect=Effect.LOADER,
    memory=Memory.EITHER,
    features=Features(loader=switched("tf_data_autotune")),
    keras=KerasSeams(at_fit=_at_fit, read=lambda _, fit: read_autotune(fit)),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="set options.autotune.enabled of the dataset",
)
