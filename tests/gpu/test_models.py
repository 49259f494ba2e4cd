"""Models of torch's own classes, and tasks around models, under other formats on a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.host import DeviceInfo
from autotune.model.outcome import Outcome
from autotune.settings import BY_NAME
from autotune.settings.cases import ScriptCase
from tests.gpu.bench import Bench, rank_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("compiles", [False, True], ids=["eager", "compiled"])
def test_a_transformer_of_torchs_own_classes_trains_in_bf16(bench: Bench, device: DeviceInfo, compiles: bool) -> None:
    if device.capability is not None and device.capability < (8, 0):
        pytest.skip(f"{device.name} has no bf16, which begins with compute capability 8.0")
    jobs = bench.probed("attends.py")
    assert jobs.facts is not None
    case = ScriptCase(facts=jobs.facts, is_cpu=False)
    assert BY_NAME["precision"].refused(case) == BY_NAME["compile"].refused(case) == ""
    result = bench.run(bench.trial(jobs, precision="bf16", compile=compiles))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["precision"] == "bf16"
    assert rank_of(result).observed["compile"] is compiles


@pytest.mark.parametrize("more", [{}, {"precision": "bf16"}, {"cudnn_benchmark": True}], ids=str)
def test_a_task_with_a_to_of_its_own_trains_in_channels_last(bench: Bench, more: dict[str, Any]) -> None:
    jobs = bench.probed("tasks.py")
    result = bench.run(bench.trial(jobs, channels_last=True, **more))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["channels_last"] is True
