"""What a script sets itself on a CUDA device is its natural value, and can be tried the other way."""

from __future__ import annotations

import pytest

from autotune.host import DeviceInfo
from autotune.model.outcome import Outcome
from tests.gpu.bench import Bench, rank_of

pytestmark = pytest.mark.gpu

OWN = {"channels-last": ("channels_last", True), "benchmark": ("cudnn_benchmark", True)}
FORMATS = {"tf32": ("precision", "tf32"), "new-tf32": ("precision", "tf32")}


@pytest.mark.parametrize("own", [*OWN, *FORMATS])
def test_what_the_script_sets_itself_is_its_natural_value(bench: Bench, device: DeviceInfo, own: str) -> None:
    if own in FORMATS and device.capability is not None and device.capability < (8, 0):
        pytest.skip(f"{device.name} has no TF32, which begins with compute capability 8.0")
    name, value = {**OWN, **FORMATS}[own]
    jobs = bench.probed("sets.py", own)
    assert getattr(jobs.script_settings, name) == value
    result = bench.run(bench.trial(jobs))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed[name] == value


@pytest.mark.parametrize("own", list(OWN))
def test_what_the_script_sets_itself_is_tried_the_other_way(bench: Bench, own: str) -> None:
    name, _ = OWN[own]
    result = bench.run(bench.trial(bench.probed("sets.py", own), **{name: False}))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed[name] is False


@pytest.mark.parametrize("name", ["channels_last", "cudnn_benchmark"])
def test_what_the_script_leaves_off_is_tried_on(bench: Bench, name: str) -> None:
    """It sets cudnn.benchmark to False after torch is imported, which must not undo the trial's."""
    result = bench.run(bench.trial(bench.probed("sets.py", "nothing"), **{name: True}))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed[name] is True
