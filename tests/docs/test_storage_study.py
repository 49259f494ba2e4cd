"""The study of storages follows advice in the words of a diagnosis."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.diagnose.advice.storage_advice import decode_faster
from autotune.model.diagnosis import Diagnosis
from autotune.model.what_if import DecoderTime, StorageTimes
from autotune.protocol.codec import to_plain
from tests.unit.diagnoses import diagnosis, loading_times, observation

STUDY = Path(__file__).parents[2] / "studies" / "storage"
PIL = DecoderTime(name="PIL", image_s=4e-3)


@pytest.fixture
def wall(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDY))
    for name in ("wall", "train"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("wall")
    for name in ("wall", "train"):
        sys.modules.pop(name, None)


def slow_decoder(other: DecoderTime) -> Diagnosis:
    tried = StorageTimes(
        num_samples=64,
        sample_s=5e-3,
        read_s=0.0,
        decode_s=4e-3,
        num_reads=1.0,
        read_bytes=1,
        decoder="PIL",
        images_per_sample=1.0,
        decoders=(PIL, other),
    )
    seen = observation(storage=tried, loading=loading_times(busy_s=0.8, cpu_s=0.8))
    return replace(diagnosis(data_wait_fraction=0.8, observation=seen), device="cuda")


@pytest.mark.parametrize(
    ("other", "decoder"),
    [
        (DecoderTime(name="torchvision", image_s=1e-3), "torchvision"),
        (DecoderTime(name="OpenCV", image_s=1e-3), "opencv"),
        (DecoderTime(name="nvJPEG", image_s=1e-5, is_on_device=True, beside_step_s=1e-3), "nvjpeg"),
    ],
)
def test_advice_on_decoders_becomes_arguments_of_the_training(wall, other, decoder):
    advice = decode_faster(slow_decoder(other))
    assert advice is not None
    assert tuple(wall.cure(to_plain(advice))) == ("--decoder", decoder)


def test_advice_without_an_argument_is_not_followed(wall):
    assert wall.cure({"action": "Decode with libraw instead of PIL.", "settings": {}}) is None
    assert wall.cure({"action": "Load more.", "settings": {"num_workers": 24}})[-2:] == ("--workers", "24")


def test_promise_and_gain_stand_below_the_table(wall):
    lines = [
        {"run": "PIL", "images_per_second": 2000.0, "utilization_percent": 70.0},
        {"run": "nvJPEG on the device (advised)", "images_per_second": 3000.0, "utilization_percent": 97.0},
    ]
    [_, text] = wall.followed_lines({"action": "Decode on the device.", "gain": 1.6}, lines)
    assert "(promised 1.60x, got 1.50x)" in text
