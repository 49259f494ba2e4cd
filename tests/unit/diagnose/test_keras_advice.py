"""Advice on scripts that train by Keras."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.diagnose.advice.advise import advise
from autotune.model.diagnosis import Diagnosis
from autotune.model.keras_facts import DataKind
from autotune.model.observation import DatasetStage
from autotune.report.diagnosis_text import diagnosis_text
from tests.unit.diagnoses import diagnosis
from tests.unit.facts import keras_script_facts


def of_keras(data: DataKind, wait: float) -> Diagnosis:
    return replace(diagnosis(data_wait_fraction=wait), facts=keras_script_facts(data=data))


@pytest.mark.parametrize(
    ("data", "cure"),
    [
        (DataKind.TF_DATA, "prefetch"),
        (DataKind.PY_DATASET, "workers"),
        (DataKind.GENERATOR, "keras.utils.PyDataset"),
        (DataKind.TORCH_LOADER, "workers"),
    ],
)
def test_slow_data_of_each_kind_has_its_cure(data: DataKind, cure: str) -> None:
    (advice,) = advise(of_keras(data, 0.5))
    assert cure in advice.action and advice.is_bound
    assert advice.gain == pytest.approx(2.0)


@pytest.mark.parametrize(("data", "wait"), [(DataKind.TF_DATA, 0.0), (DataKind.ARRAYS, 0.5)])
def test_data_that_keeps_up_or_lies_in_memory_gets_no_advice(data: DataKind, wait: float) -> None:
    assert advise(of_keras(data, wait)) == ()


def test_a_compiled_step_is_told_as_one_part() -> None:
    text = diagnosis_text(of_keras(DataKind.TF_DATA, 0.1))
    assert "the training function" in text and "backward" not in text


def test_the_slowest_stage_of_a_tf_data_dataset_is_named() -> None:
    stages = (DatasetStage(name="Map", busy_s=0.02), DatasetStage(name="Batch", busy_s=0.001))
    sick = of_keras(DataKind.TF_DATA, 0.5)
    sick = replace(sick, observation=replace(sick.observation, dataset_stages=stages))
    (advice,) = advise(sick)
    assert "its slowest stage is Map, 20 ms of work on a batch in one thread" in advice.source
    assert "Batch, 1 ms" in diagnosis_text(sick)
