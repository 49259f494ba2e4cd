"""What a diagnosis sees of a CUDA device: its work, its copies, calls that wait for it, its memory by kind."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest

from autotune.diagnose.advice.advise import advise
from autotune.diagnose.findings import make_diagnosis
from autotune.model.diagnosis import Diagnosis, Sickness
from autotune.model.outcome import Outcome
from autotune.report.diagnosis_text import diagnosis_text
from autotune.settings import Precision
from autotune.trial.observing.decoder_times import decoder_times, device_decoders
from tests.gpu.bench import Bench, note

pytestmark = pytest.mark.gpu
SAMPLES = 64


def diagnosed(bench: Bench, script: str) -> Diagnosis:
    """The diagnosis of a script, with advice, from a probe and one observed run."""
    jobs = bench.probed(script)
    assert jobs.script_settings is not None and jobs.facts is not None
    job = jobs.trial(jobs.script_settings)
    result = bench.run(replace(job, diagnoses=True, total_limit_s=job.total_limit_s + 120))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    found = make_diagnosis(jobs.spec, jobs.target, jobs.script_settings, jobs.facts, result)
    found = replace(found, advice=advise(found))
    note(f"diagnosis of {script}", diagnosis_text(found))
    return found


def test_calls_that_wait_for_the_device_are_found_and_advised_against_first(bench: Bench) -> None:
    found = diagnosed(bench, "reads.py")
    seen = found.observation
    assert seen.device is not None and 0 < seen.device.copy_s < seen.device.busy_s
    assert found.device_share is not None and 0 < found.device_share < 1
    assert found.host_share > 0.3, "the device waits for the script most of the time"
    calls = sum(place.calls_per_step for place in seen.host_places if place.call)
    assert calls == pytest.approx(2 * SAMPLES + 1, rel=0.1)
    assert all(place.call == "Tensor.item" for place in seen.host_places if place.call)
    memory = seen.memory
    assert memory is not None and memory.activations_bytes
    assert memory.optimizer_state_bytes >= 2 * memory.parameters_bytes
    assert found.peak_allocated_bytes is not None and found.peak_allocated_bytes > memory.parameters_bytes
    assert found.outside_allocator_bytes
    assert {ratio.precision for ratio in seen.formats} & {Precision.TF32, Precision.BF16, Precision.FP16}
    assert found.advice[0].sickness is Sickness.HOST, diagnosis_text(found)
    assert found.advice[0].gain is not None and not found.advice[0].is_bound


def test_a_list_of_images_is_decoded_on_the_device() -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("torchvision")
    pixels = np.random.default_rng(0).integers(0, 256, (256, 384, 3), dtype=np.uint8)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "JPEG")
    images = [file.getvalue()] * 16
    on_device = device_decoders(images)
    note("decoders", repr((*decoder_times(images), *(each.alone for each in on_device))))
    assert "nvJPEG" in {each.alone.name for each in on_device}
    assert all(each.alone.is_on_device and each.alone.image_s > 0 for each in on_device)
    assert all(each.list_bytes == 16 * pixels.size for each in on_device)


def test_lists_are_decoded_on_the_device_beside_training_and_advised(bench: Bench) -> None:
    pytest.importorskip("PIL.Image")
    pytest.importorskip("torchvision")
    found = diagnosed(bench, "decodes.py")
    tried = found.observation.storage
    assert tried is not None and tried.decoder in ("PIL", "Pillow-SIMD")
    [nvjpeg] = [each for each in tried.decoders if each.name == "nvJPEG"]
    assert nvjpeg.beside_step_s is not None, "the steps beside the decoder were not timed"
    note("nvJPEG alone, and a step beside it", f"{nvjpeg.image_s:.2e} s, {nvjpeg.beside_step_s:.2e} s")
    assert nvjpeg.beside_step_s >= found.samples_per_step * nvjpeg.image_s / 2, "a step decodes all of its images"
    assert any("torchvision.io.decode_jpeg" in each.action for each in found.advice), diagnosis_text(found)
