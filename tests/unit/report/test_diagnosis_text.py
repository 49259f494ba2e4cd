from __future__ import annotations

import json
from dataclasses import replace

from autotune.diagnose.advice.advise import advise
from autotune.model.observation import DeviceTimes, HostPlace, LargerBatch
from autotune.report.diagnosis_text import SICKNESS_WORDS, WIDTH, diagnosis_text
from autotune.report.document import document_text

from ..diagnoses import diagnosis, loading_times, observation


def sick():
    split = loading_times(busy_s=0.8, cpu_s=0.8, open_s=0.5, read_s=0.2, num_files=6400, read_bytes=6400 * 200)
    item = HostPlace(
        file="/home/u/train.py",
        line=42,
        first_line=41,
        last_line=43,
        share=0.3,
        call="Tensor.item",
        calls_per_step=64.0,
    )
    found = diagnosis(
        data_wait_fraction=0.6,
        ceiling_samples_per_second=2000.0,
        observation=observation(
            loading=split, host_places=(item,), larger_batch=LargerBatch(factor=8, own_step_s=0.01, step_s=0.02)
        ),
        notes=("Others kept 1.5 of 2 cores busy.",),
    )
    return replace(found, advice=advise(found), profiles=("out/trace.json",))


def test_the_page_says_what_was_measured_and_what_to_do_first():
    page = diagnosis_text(sick())
    text = " ".join(page.split())
    assert text.startswith("train.py on CPU, 8 usable cores")
    assert "640 [630, 650] samples per second; a step takes 100 ms" in text
    assert "2,000 samples per second without any loader; this is 32% of that" in text
    assert "data wait 10%, forward 30%, backward 40%, optimizer 10%, the rest of the script 10%" in text
    assert "opening files 62%, reading 25%" in text and "10 opened per sample, 200 B each" in text
    assert "parameters 4.0 MiB, gradients 4.0 MiB, optimizer state 8.0 MiB, activations 100.0 MiB" in text
    first = page[page.index("  1. ") :].splitlines()[0]
    assert any(word in first for word in SICKNESS_WORDS.values())
    assert "train.py:41-43" in text and "note: Others kept" in text and "out/trace.json" in text
    assert max(map(len, page.splitlines())) <= WIDTH and page.isascii()


def test_on_a_device_the_page_says_what_it_does_and_what_lies_outside_its_allocator():
    device = DeviceTimes(num_steps=10, busy_s=0.6, copy_s=0.1)
    page = diagnosis_text(
        diagnosis(
            is_cpu=False,
            device_utilization=0.75,
            data_wait_fraction=0.1,
            outside_allocator_bytes=500 << 20,
            observation=observation(device=device),
        )
    )
    text = " ".join(page.split())
    assert "data 10%, host 30%, copies 10%, the device works for 60%, utilization by NVML 75%" in text
    assert "outside the allocator 500.0 MiB" in text


def test_a_healthy_script_is_sent_to_the_search():
    assert "Nothing stands out" in diagnosis_text(diagnosis())


def test_the_document_holds_every_figure_of_the_page():
    document = json.loads(document_text(sick().document()))
    assert document["samples_per_second"] == 640.0
    assert document["advice"][0]["gain"] >= document["advice"][-1]["gain"] > 1
    assert document["memory"]["optimizer_state_bytes"] == 8 << 20
    assert sum(document["step_shares"].values()) == 1.0
    assert document["loading"]["num_files"] == 6400 and document["host_places"][0]["line"] == 42
    assert document["num_parameters"] == 1000 and document["copy_share"] is None


def test_a_batch_of_what_lies_in_memory_has_no_parts_to_show():
    text = diagnosis_text(diagnosis())
    assert "takes 10 ms to build in one process; neither an opened file" in text and "opening files" not in text
