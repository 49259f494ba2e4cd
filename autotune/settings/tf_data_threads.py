"""`tf_data_threads`: threads of a tf.data dataset's own pool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autotune.settings.keras_group import of_keras, refused_without
from autotune.settings.setting import Effect, Features, Group, KerasSeams, OwnLine, Setting, at_most_per_core

why_no_dataset = refused_without("tf.data", "tf.data dataset")


def dataset_of(fit: Mapping[str, Any]) -> Any:
    """The dataset in the arguments of `fit`; None for other data."""
    data = fit.get("x")
    return data if hasattr(data, "element_spec") and hasattr(data, "with_options") else None


def with_option(fit: dict[str, Any], change: Any) -> None:
    """Puts changed options on the dataset in the arguments of `fit`.

    Args:
        fit: The arguments of `fit`, by name.
        change: Called with a new `tf.data.Options`; options left alone there stay as the script set them.
    """
    dataset = dataset_of(fit)
    if dataset is None:
        return
    import tensorflow

    options = tensorflow.data.Options()
    change(options)
    fit["x"] = dataset.with_options(options)


def _at_fit(value: Any, fit: dict[str, Any]) -> None:
    def change(options: Any) -> None:
        options.threading.private_threadpool_size = value

    with_option(fit, change)


def read_threads(fit: Mapping[str, Any]) -> int | None:
    """The size of the dataset's own pool; None without a dataset."""
    dataset = dataset_of(fit)
    return None if dataset is None else int(dataset.options().threading.private_threadpool_size or 0)


SETTING = Setting(
    name="tf_data_threads",
    group=Group.DATA,
    default=0,
    takes_effect="options of the dataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no tf.data dataset; more threads than twice the cores",
    frameworks_of_scripts=("keras",),
    domain=(0, 1, 2, 4, 8, 16, 32, 64),
    bounds=(0, 4096),
    most_searched=4096,
    own=of_keras("tf_data_threads"),
    refused=why_no_dataset,
    is_tried=at_most_per_core(2),
    cpu_turn=7,
    effect=Effect.LOADER,
    features=Features(loader=lambda own: (math.log2(1 + own.tf_data_threads), 1.0 * (own.tf_data_threads == 0))),
    keras=KerasSeams(at_fit=_at_fit, read=lambda _, fit: read_threads(fit)),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="set options.threading.private_threadpool_size of the dataset",
)
