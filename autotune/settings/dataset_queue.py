"""`dataset_queue`: batches that the workers of a `keras.utils.PyDataset` hold ready."""

from __future__ import annotations

import math

from autotune.settings.dataset_workers import seams_of, why_no_dataset
from autotune.settings.keras_group import of_keras
from autotune.settings.setting import Effect, Features, Group, Memory, OwnLine, Setting

SETTING = Setting(
    name="dataset_queue",
    group=Group.DATA,
    default=10,
    takes_effect="the PyDataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no PyDataset; a single worker",
    frameworks_of_scripts=("keras",),
    domain=(2, 5, 10, 20, 50),
    bounds=(1, 4096),
    most_searched=4096,
    own=of_keras("dataset_queue"),
    refused=why_no_dataset,
    is_inert=lambda own: own.dataset_workers == 1,
    cpu_turn=11,
    effect=Effect.LOADER,
    memory=Memory.MORE,
    features=Features(loader=lambda own: (math.log2(own.dataset_queue),)),
    keras=seams_of("max_queue_size"),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="pass max_queue_size to the PyDataset",
)
