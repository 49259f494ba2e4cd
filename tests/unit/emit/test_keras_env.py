"""A tuned config as variables for Keras and its engines."""

from __future__ import annotations

from dataclasses import replace

from autotune.emit.export import export

from .example import TUNED, tuned_config

KERAS = replace(TUNED, keras_backend="jax", engine_threads=4, steps_per_execution=8)  # type: ignore[arg-type]


def test_the_engine_and_its_threads_become_variables_and_the_rest_is_named() -> None:
    text = export(tuned_config(settings=KERAS), "keras-env")
    lines = text.splitlines()
    assert "KERAS_BACKEND=jax" in lines and "NPROC=4" in lines and "TF_NUM_INTRAOP_THREADS=4" in lines
    assert any(line.startswith("# NOT in here: steps_per_execution=8") for line in lines)
    assert not [line for line in lines if line.startswith("AUTOTUNE_")]
