"""Decoding on the device beside training: lists per step, queue, failures, memory. No duration is compared."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from autotune.model.what_if import DecoderTime, StorageTimes
from autotune.trial.observing.decoder_times import dali_pipeline
from autotune.trial.observing.decoding_stage import LISTS_AHEAD, LISTS_ALIVE, DecodersOnDevice, DecodingStage
from autotune.trial.observing.observer import Observer
from autotune.trial.step.roots import Roots
from autotune.trial.step.steps import Steps

from ...facts import script_facts


class Decoder:
    """Counts decoded lists, and may fail."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.num_lists, self.fails_after = 0, fails_after

    def __call__(self) -> int:
        if self.num_lists == self.fails_after:
            raise RuntimeError("out of memory")
        self.num_lists += 1
        return 1


def jpeg():
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (32, 24)).save(file, "JPEG")
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(DecodingStage, "timed_s", 0.0)


def stage_of(decode, given, lists_per_step=1):
    return DecodingStage(decode, lists_per_step, given.append, "batch", lambda: None)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "autotune-decoding"]


@pytest.mark.parametrize("lists_per_step", [1, 3])
def test_every_step_waits_for_its_own_decoded_lists(lists_per_step):
    decode, given = Decoder(), []
    stage = stage_of(decode, given, lists_per_step)
    stage.begin()
    num_steps = 0
    while not stage.is_over:
        stage.stepped()
        num_steps += 1
        assert num_steps * lists_per_step <= decode.num_lists <= num_steps * lists_per_step + LISTS_AHEAD + 1
    stage.end(num_steps, 1.0)
    assert num_steps == stage.num_ramp + stage.num_timed
    assert stage.step_s is not None and stage.step_s > 0
    assert given == ["batch", None] and not threads()


def test_a_decoder_that_fails_ends_the_stage_without_a_time():
    given = []
    stage = stage_of(Decoder(fails_after=2), given)
    stage.begin()
    for _ in range(10):
        if not stage.is_over:
            stage.stepped()
    stage.end(3, 1.0)
    assert stage.is_over and stage.step_s is None
    assert given == ["batch", None] and not threads()


def test_a_script_that_ends_early_leaves_no_thread():
    given = []
    stage = stage_of(Decoder(), given)
    stage.begin()
    stage.stepped()
    stage.end(1, 1.0)
    assert stage.step_s is None and given == ["batch", None] and not threads()


@pytest.fixture
def torchvision(monkeypatch):
    """A stand-in for torchvision's decoder; gives lengths and devices of the decoded lists."""
    calls = []

    def decode_jpeg(encoded, device):
        calls.append((len(encoded), device))
        return [torch.zeros(3, 4, 5, dtype=torch.uint8) for _ in encoded]

    fake = SimpleNamespace(decode_jpeg=decode_jpeg)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(io=fake))
    monkeypatch.setitem(sys.modules, "torchvision.io", fake)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr("autotune.trial.observing.decoder_times.LIMIT_S", 0.0)
    return calls


def decoders(room_bytes, given):
    return DecodersOnDevice([b"one", b"two", b"three"], 8, room_bytes, lambda decode: stage_of(decode, given))


def test_nvjpeg_decodes_a_batchs_images_as_one_list_beside_the_steps(torchvision):
    given = []
    found = decoders(LISTS_ALIVE * 8 * 60, given)
    for stage in found.stages():
        assert [each.beside_step_s for each in found.times] == [None]
        stage.begin()
        while not stage.is_over:
            stage.stepped()
        stage.end(1, 1.0)
    [time] = found.times
    assert time.name == "nvJPEG" and time.is_on_device and time.beside_step_s is not None
    assert set(torchvision) == {(8, "cuda")} and given == ["batch", None]


def test_without_room_for_decoded_lists_training_is_left_alone(torchvision):
    given = []
    found = decoders(LISTS_ALIVE * 8 * 60 - 1, given)
    assert not list(found.stages()) and not given
    assert [(each.name, each.beside_step_s) for each in found.times] == [("nvJPEG", None)]


def test_without_images_or_decoders_nothing_is_tried(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.io", None)
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    found = decoders(1e12, [])
    assert not list(found.stages()) and found.times == ()
    empty = DecodersOnDevice([], 8, 1e12, lambda decode: stage_of(decode, []))
    assert not list(empty.stages()) and empty.times == ()


@pytest.mark.parametrize(
    ("wait", "of_window", "has_room"),
    [(0.5, 0.5, True), (0.5, 0.5, False), (0.01, 0.01, True), (0.01, 0.3, True)],
    ids=["waits", "no room", "never waits", "waits when nobody observes"],
)
def test_a_diagnosis_on_a_device_decodes_beside_steps_where_training_waits(
    monkeypatch, torchvision, wait, of_window, has_room
):
    given = []
    source = SimpleNamespace(give=given.append, is_read_ahead=False, substitute_s=0.0)
    job = SimpleNamespace(device="cpu", world_size=1, facts=script_facts())
    watching = Observer(job, None, Steps(), Roots(), source, at_begin=lambda: None, wait_fraction=lambda: of_window)
    watching._first_batch = torch.zeros(4, 3)
    watching._calls.times = SimpleNamespace(data_wait_s=wait, wall_s=1.0)
    watching._what_if.images = [b"one", b"two"]
    tried = StorageTimes(
        num_samples=9,
        sample_s=1e-3,
        read_s=0.0,
        decode_s=1e-3,
        num_reads=0.0,
        read_bytes=0,
        images_per_sample=2.0,
        decoders=(DecoderTime(name="PIL", image_s=1e-3),),
    )
    monkeypatch.setattr(watching._what_if, "measure", lambda: tried)
    monkeypatch.setattr(Observer, "_room_bytes", lambda _: 1e12 if has_room else 0.0)
    monkeypatch.setattr("autotune.trial.observing.decoding_stage._own_stream", contextlib.nullcontext)
    monkeypatch.setattr("autotune.trial.observing.observer.torch_names.is_cuda_on", lambda: True)
    for stage in watching._storage_stages():
        stage.begin()
        while not stage.is_over:
            stage.stepped()
        stage.end(1, 1.0)
    found = watching._storage_times()
    if max(wait, of_window) < 0.05:
        assert found is None and not torchvision
        return
    assert found is not None
    pil, nvjpeg = found.decoders
    assert (pil.name, nvjpeg.name) == ("PIL", "nvJPEG")
    assert (nvjpeg.beside_step_s is not None) is has_room
    assert {count for count, _ in torchvision} == {4 * 2}, "four samples of two images"
    assert len(given) == (2 if has_room else 0)


def test_a_run_of_dali_decodes_one_list_and_no_list_of_a_later_run():
    """A pipeline that worked ahead took 1 ms for a list of 40 ms after a pause."""
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI comes with the extra `frameworks`")
    given = []

    def source():
        given.append("list")
        return [jpeg(), jpeg()]

    pipeline = dali_pipeline(source, 2, None)
    for num_runs in (1, 2, 3):
        [decoded] = pipeline.run()
        assert len(given) == num_runs
        assert [tuple(shape) for shape in decoded.shape()] == [(24, 32, 3)] * 2
