"""`tf_device_prefetch`: a tf.data dataset copies batches to the GPU while the model trains on another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.settings.keras_backend import KerasBackend
from autotune.settings.setting import Effect, Features, Group, KerasSeams, Memory, OwnLine, Setting, switched
from autotune.settings.tf_data_prefetch import MARK as PREFETCHED
from autotune.settings.tf_data_threads import dataset_of, why_no_dataset
from autotune.settings.tf_memory_growth import gpus_of_tensorflow

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase

MARK = "_autotune_on_device"
"""Attribute of a dataset with a copy to the device at the end."""
DEVICE = "/GPU:0"


def _refused(case: ScriptCase) -> str:
    keras = case.facts.keras
    if keras is not None and keras.engine != KerasBackend.TENSORFLOW.value:
        return "the engine below Keras is not TensorFlow"
    return why_no_dataset(case)


def _at_fit(value: Any, fit: dict[str, Any]) -> None:
    dataset = dataset_of(fit)
    if dataset is None or not value or not gpus_of_tensorflow():
        return
    import tensorflow

    copied = dataset.apply(tensorflow.data.experimental.prefetch_to_device(DEVICE))
    setattr(copied, MARK, True)
    setattr(copied, PREFETCHED, getattr(dataset, PREFETCHED, False))
    fit["x"] = copied


SETTING = Setting(
    name="tf_device_prefetch",
    group=Group.DATA,
    default=False,
    takes_effect="the dataset that `fit` receives, in Keras scripts",
    left_alone="on a CPU; on other engines; `fit` receives no tf.data dataset",
    frameworks_of_scripts=("keras",),
    domain=(False, True),
    needs_accelerator=True,
    is_inert=lambda own: own.keras_backend is not KerasBackend.TENSORFLOW,
    refused=_refused,
    is_foreign=lambda case: bool(_refused(case)),
    effect=Effect.LOADER,
    memory=Memory.MORE,
    features=Features(loader=switched("tf_device_prefetch")),
    keras=KerasSeams(at_fit=_at_fit, read=lambda _, fit: bool(getattr(dataset_of(fit), MARK, False))),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="end the dataset with .apply(tf.data.experimental.prefetch_to_device('/GPU:0'))",
)
