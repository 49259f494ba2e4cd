"""`tf_data_prefetch`: a tf.data dataset builds batches while the model trains on another."""

from __future__ import annotations

from typing import Any

from autotune.settings.setting import Effect, Features, Group, KerasSeams, Memory, OwnLine, Setting, switched
from autotune.settings.tf_data_threads import dataset_of, why_no_dataset

MARK = "_autotune_prefetched"
"""Attribute of a dataset with a prefetch of ours at the end."""


def _at_fit(value: Any, fit: dict[str, Any]) -> None:
    dataset = dataset_of(fit)
    if dataset is None or not value:
        return
    import tensorflow

    prefetched = dataset.prefetch(tensorflow.data.AUTOTUNE)
    setattr(prefetched, MARK, True)
    fit["x"] = prefetched


SETTING = Setting(
    name="tf_data_prefetch",
    group=Group.DATA,
    default=False,
    takes_effect="the dataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no tf.data dataset",
    frameworks_of_scripts=("keras",),
    domain=(False, True),
    refused=why_no_dataset,
    cpu_turn=5,
    effect=Effect.LOADER,
    memory=Memory.MORE,
    features=Features(loader=switched("tf_data_prefetch")),
    keras=KerasSeams(at_fit=_at_fit, read=lambda _, fit: bool(getattr(dataset_of(fit), MARK, False))),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="end the dataset with .prefetch(tf.data.AUTOTUNE)",
)
