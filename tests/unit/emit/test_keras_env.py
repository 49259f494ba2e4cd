"""A tuned config as variables for Keras and its engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.emit.export import export
from autotune.settings import Settings
from autotune.settings.keras_backend import KerasBackend
from autotune.settings.tf_gpu_allocator import TfGpuAllocator

from .example import TUNED, tuned_config

KERAS = replace(TUNED, keras_backend="jax", engine_threads=4, steps_per_execution=8)  # type: ignore[arg-type]


def test_the_engine_and_its_threads_become_variables_and_the_rest_is_named() -> None:
    text = export(tuned_config(settings=KERAS), "keras-env")
    lines = text.splitlines()
    assert "KERAS_BACKEND=jax" in lines and "NPROC=4" in lines and "TF_NUM_INTRAOP_THREADS=4" in lines
    assert any(line.startswith("# NOT in here: steps_per_execution=8") for line in lines)
    assert not [line for line in lines if line.startswith("AUTOTUNE_")]


def test_what_a_keras_script_has_of_its_own_or_cannot_have_is_not_in_the_text() -> None:
    natural = Settings(keras_backend="tensorflow", batch_size=32, intra_op_threads=2)  # type: ignore[arg-type]
    config = tuned_config(settings=replace(natural, keras_backend="jax"))  # type: ignore[arg-type]
    text = export(replace(config, script=replace(config.script, natural=natural)), "keras-env")
    assert [line for line in text.splitlines() if not line.startswith("#")] == ["KERAS_BACKEND=jax"]
    assert "NOT in here" not in text


def test_a_tuned_micro_batch_is_named_with_the_call_of_keras() -> None:
    natural = Settings(keras_backend="tensorflow", batch_size=32)  # type: ignore[arg-type]
    config = tuned_config(settings=replace(natural, batch_size=16, grad_accum_steps=2))
    text = export(replace(config, script=replace(config.script, natural=natural)), "keras-env")
    assert "NOT in here: batch_size=16: pass it to the DataLoader, or to fit of Keras." in text


@pytest.mark.parametrize("engine", ["torch", "tensorflow", "jax"])
def test_a_share_of_the_gpu_is_named_where_no_variable_carries_it(engine: str) -> None:
    natural = Settings(keras_backend=KerasBackend(engine))
    config = tuned_config(settings=replace(natural, engine_memory_fraction=0.5))
    text = export(replace(config, script=replace(config.script, natural=natural)), "keras-env")
    assert ("NOT in here: engine_memory_fraction=0.5" in text) is (engine != "jax")
    assert ("XLA_PYTHON_CLIENT_MEM_FRACTION=0.5" in text.splitlines()) is (engine == "jax")


def test_a_way_back_from_what_the_environment_says_is_a_variable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_GPU_ALLOCATOR", "cuda_malloc_async")
    natural = Settings(keras_backend=KerasBackend.TENSORFLOW, tf_gpu_allocator=TfGpuAllocator.CUDA_MALLOC_ASYNC)
    config = tuned_config(settings=replace(natural, tf_gpu_allocator=TfGpuAllocator.DEFAULT))
    text = export(replace(config, script=replace(config.script, natural=natural)), "keras-env")
    assert "TF_GPU_ALLOCATOR=''" in text.splitlines()
