"""The number of algorithms that cuDNN times: put in force, read back, and tried where cuDNN times at all."""

from __future__ import annotations

import pytest
import torch

from autotune.settings import Settings
from autotune.settings.cudnn_benchmark_limit import ALL, SETTING
from autotune.space.derive import derive_space
from tests.unit.facts import cpu_machine, gpu_machine, script_facts, search_spec


def test_the_limit_is_written_and_read_at_torchs_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark_limit", 10, raising=False)
    assert SETTING.write is not None and SETTING.read is not None
    SETTING.write(ALL)
    assert SETTING.read() == ALL == torch.backends.cudnn.benchmark_limit


def test_a_limit_without_timing_is_inert() -> None:
    assert Settings(cudnn_benchmark_limit=ALL).canonical(device_is_cpu=False) == Settings()
    timed = Settings(cudnn_benchmark=True, cudnn_benchmark_limit=ALL)
    assert timed.canonical(device_is_cpu=False) == timed and timed.canonical(device_is_cpu=True) == Settings()


def test_the_limit_is_tried_where_a_model_has_convolutions() -> None:
    on_cuda = derive_space(script_facts(device="cuda"), gpu_machine(), search_spec())
    assert on_cuda.allowed["cudnn_benchmark_limit"] == (10, ALL)
    without = derive_space(script_facts(device="cuda", notes=("no_convolution",)), gpu_machine(), search_spec())
    assert without.allowed["cudnn_benchmark_limit"] == (10,)
    assert derive_space(script_facts(), cpu_machine(), search_spec()).allowed["cudnn_benchmark_limit"] == (10,)
