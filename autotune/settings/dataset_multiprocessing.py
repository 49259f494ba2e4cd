"""`dataset_multiprocessing`: whether the workers of a `keras.utils.PyDataset` are processes."""

from __future__ import annotations

from autotune.settings.dataset_workers import put, seen, why_no_dataset
from autotune.settings.setting import Effect, Features, Group, KerasSeams, Memory, OwnLine, Setting, switched

SETTING = Setting(
    name="dataset_multiprocessing",
    group=Group.DATA,
    default=False,
    takes_effect="the PyDataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no PyDataset; a single worker",
    frameworks_of_scripts=("keras",),
    domain=(False, True),
    own=lambda facts: facts.keras.dataset_multiprocessing if facts.keras is not None else None,
    refused=why_no_dataset,
    is_inert=lambda own: own.dataset_workers == 1,
    cpu_turn=10,
    effect=Effect.LOADER,
    memory=Memory.MORE,
    features=Features(loader=switched("dataset_multiprocessing")),
    keras=KerasSeams(
        at_fit=lambda value, fit: put("use_multiprocessing", value, fit),
        read=lambda _, fit: seen("use_multiprocessing", fit),
    ),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="pass use_multiprocessing to the PyDataset",
)
