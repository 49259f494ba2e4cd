"""`dataset_multiprocessing`: whether the workers of a `keras.utils.PyDataset` are processes."""

from __future__ import annotations

from autotune.settings.dataset_workers import seams_of, why_no_dataset
from autotune.settings.keras_group import of_keras
from autotune.settings.setting import Effect, Features, Group, Memory, OwnLine, Setting, switched

SETTING = Setting(
    name="dataset_multiprocessing",
    group=Group.DATA,
    default=False,
    takes_effect="the PyDataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no PyDataset; a single worker",
    frameworks_of_scripts=("keras",),
    domain=(False, True),
    own=of_keras("dataset_multiprocessing"),
    refused=why_no_dataset,
    is_inert=lambda own: own.dataset_workers == 1,
    cpu_turn=10,
    effect=Effect.LOADER,
    memory=Memory.MORE,
    features=Features(loader=switched("dataset_multiprocessing")),
    keras=seams_of("use_multiprocessing"),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="pass use_multiprocessing to the PyDataset",
)
