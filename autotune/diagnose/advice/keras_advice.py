"""Advice on scripts that train by Keras. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.diagnose.advice.loading_advice import is_loader_slow
from autotune.diagnose.advice.step_times import gain_of, wait_s
from autotune.model.diagnosis import Advice, Diagnosis, Sickness
from autotune.model.keras_facts import DataKind

CURES: Mapping[str, tuple[str, str]] = {
    DataKind.TF_DATA: (
        "Build batches while the model trains: map with num_parallel_calls=tf.data.AUTOTUNE, and end in prefetch.",
        "the tf.data dataset that fit receives",
    ),
    DataKind.PY_DATASET: (
        "Let workers of the PyDataset build batches, as processes where Python does the work.",
        "workers=N and use_multiprocessing=True of the PyDataset that fit receives",
    ),
    DataKind.GENERATOR: (
        "Turn the generator into a keras.utils.PyDataset, whose workers build batches beside training.",
        "the generator that fit receives",
    ),
    DataKind.TORCH_LOADER: ("Give the DataLoader workers.", "num_workers=N of the DataLoader that fit receives"),
}
"""What to do about slow data, and where, by the kind of data."""


def feed_keras(diagnosis: Diagnosis) -> Advice | None:
    """Advises on the data of `fit` when training waits for it."""
    keras = diagnosis.facts.keras
    cure = CURES.get(keras.data) if keras is not None else None
    if cure is None or not is_loader_slow(diagnosis):
        return None
    waited_s = wait_s(diagnosis)
    slowest = "".join(f"; its slowest stage is {stage.text}" for stage in diagnosis.observation.dataset_stages[:1])
    return Advice(
        sickness=Sickness.LOADER,
        action=cure[0],
        where=cure[1],
        gain=gain_of(diagnosis, diagnosis.step_s - waited_s),
        is_bound=True,
        source=f"a step waits {1000 * waited_s:.1f} ms for its data; no wait at all is the bound{slowest}",
    )
