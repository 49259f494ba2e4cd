"""Variables that a script changed before it imported torch."""

from __future__ import annotations

import pytest

from autotune.trial.imports import early_environment


def test_a_variable_that_an_import_may_have_read_is_told_and_one_that_is_read_when_asked_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMP_OF_A_TEST", "PYTORCH_NVML_BASED_CUDA_CHECK"):
        monkeypatch.setenv(name, "changed since the process started")
    assert "OMP_OF_A_TEST" in early_environment()
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in early_environment()
