"""`cfg.fit_kwargs`: the arguments of `keras.Model.fit`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from autotune.settings import Settings

from .scripts import config_of

SAMPLES = np.zeros((640, 4))


def fit_arguments(tuned: int, data: object = SAMPLES, **arguments: object) -> dict[str, object]:
    given = config_of(Settings(batch_size=tuned)).fit_kwargs(data, **arguments)
    del given["x"]
    return given


@pytest.mark.parametrize(
    ("batch_size", "num_steps"),
    [pytest.param(64, 10, id="the script's own"), pytest.param(32, 20, id="half"), pytest.param(128, 5, id="twice")],
)
def test_an_epoch_of_a_fixed_number_of_steps_keeps_its_samples(batch_size: int, num_steps: int) -> None:
    expected = {"batch_size": batch_size, "steps_per_epoch": num_steps}
    assert fit_arguments(batch_size, steps_per_epoch=10) == expected  # Keras takes batches of 640 / 10.
    assert fit_arguments(batch_size, batch_size=64, steps_per_epoch=10) == expected
    in_mapping = {"words": SAMPLES, "lengths": SAMPLES}
    assert fit_arguments(batch_size, in_mapping, steps_per_epoch=10) == expected


def test_an_epoch_of_all_samples_gets_the_batch_alone() -> None:
    assert fit_arguments(16) == {"batch_size": 16}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(SimpleNamespace(element_spec=None), id="tf.data"),
        pytest.param(iter([SAMPLES]), id="generator"),
    ],
)
def test_data_in_batches_keeps_its_batches_and_its_steps(data: object) -> None:
    config = config_of(Settings(batch_size=64))
    assert config.fit_kwargs(data, steps_per_epoch=100)["steps_per_epoch"] == 100
    assert "batch_size" not in config.fit_kwargs(data) and "batch_size" not in config.in_force()
