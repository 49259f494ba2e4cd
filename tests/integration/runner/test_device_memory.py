"""The cap on a CUDA device holds while the trial runs."""

from __future__ import annotations

import pytest

from autotune.model.outcome import Outcome
from autotune.runner.cold import ColdRunner
from autotune.runner.device import choose_device, used_bytes
from autotune.units import GIB
from tests.integration.runner.ground import Ground


@pytest.mark.gpu
def test_more_device_memory_than_the_cap_ends_the_run(ground: Ground) -> None:
    device = choose_device("cuda")
    before = used_bytes(device)
    assert before is not None
    runner = ColdRunner(ground.workspace, device)
    job = ground.job("cuda_allocates.py", str(20 * GIB), device="cuda", devices=(device.uuid,), cap_bytes=4 * GIB)
    result = runner.start(job).result()
    assert result.outcome is Outcome.OVER_CAP, result.log_tail
    assert result.peak_memory_bytes is not None and 4 * GIB < result.peak_memory_bytes < 12 * GIB
    assert "held" not in result.log_tail
    after = used_bytes(device)
    assert after is not None and after < before + GIB // 2
    ground.check("over the cap of the device", result)
