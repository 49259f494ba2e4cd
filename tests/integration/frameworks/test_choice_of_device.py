"""What frameworks ask of a device before a model is built is known, so that CUDA does not start there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from autotune.model.facts import VisibleDevices
from autotune.protocol.environment import VISIBLE_DEVICES
from autotune.trial.start.known_devices import KnownDevices
from autotune.trial.start.prelude_end import CUDA_STARTERS


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [{}, {"bf16": True}, {"tf32": True}, {"fp16": True}], ids=str)
def test_the_trainers_arguments_start_no_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: dict[str, bool]
) -> None:
    transformers = pytest.importorskip("transformers")
    state = pytest.importorskip("accelerate.state")
    started: list[str] = []
    for owner in CUDA_STARTERS:
        monkeypatch.setattr(owner, "_lazy_init", lambda: started.append("CUDA"))
    for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
        monkeypatch.setattr(transformers.training_args, name, getattr(transformers.training_args, name).__wrapped__)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    precision = torch.backends.fp32_precision
    devices = KnownDevices(
        VisibleDevices(asked_for=os.environ.get(VISIBLE_DEVICES), num_devices=1, capabilities=((9, 0),))
    )
    devices.install()
    try:
        arguments = transformers.TrainingArguments(output_dir=str(tmp_path), report_to="none", **chosen)
        assert arguments.device == torch.device("cuda", 0) and started == []
    finally:
        devices.remove()
        torch.backends.fp32_precision = precision
        state.AcceleratorState._reset_state(reset_partial_state=True)
