"""The use of the machine before and after, from the windows of the finals to what a person sees."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.emit.tuned_config import read_config
from autotune.host import DeviceInfo
from autotune.lab.function_runner import evaluate
from autotune.model.cards import CARDS, card_of
from autotune.model.search_result import SearchResult
from autotune.model.surroundings import Surroundings
from autotune.model.usage import Usage
from autotune.report.status_text import best_text
from autotune.report.summary_text import NextCommands, summary
from autotune.report.usage_text import WHY_LESS, usage_rows
from autotune.settings import Precision, Settings
from autotune.study.finals_usage import usage_of
from autotune.units import GIB, MIB
from tests.unit.facts import script_facts
from tests.unit.study.whole_search import by_workers, folder

__all__ = ["folder"]

H100 = DeviceInfo(kind="cuda", name="NVIDIA H100 80GB HBM3", total_bytes=80 * GIB, free_bytes=79 * GIB, uuid="GPU-1")
COMMANDS = NextCommands(resume="", export="", show="", report="", run="")


def result_of(rate, **seen):
    around = Surroundings(window_s=2.0, usable_cpus=16.0, **seen)
    return replace(evaluate(lambda _: rate, Settings(), 80 * GIB), peak_memory_bytes=13 * GIB, surroundings=around)


def test_figures_are_means_over_the_finals():
    runs = [result_of(100.0, device_utilization=0.5, power_w=300.0, storage_read_bytes=4 * MIB, own_cpus=2.0)]
    runs.append(result_of(100.0, device_utilization=0.7, power_w=500.0, storage_read_bytes=8 * MIB, own_cpus=4.0))
    usage = usage_of(runs, Settings(), script_facts(device="cuda"), H100)
    assert (usage.device_utilization, usage.power_w, usage.cpus) == (pytest.approx(0.6), 400.0, 3.0)
    assert usage.joules_per_sample == pytest.approx(4.0)
    assert usage.read_bytes_per_s == 3 * MIB
    assert (usage.peak_memory_bytes, usage.total_memory_bytes) == (13 * GIB, 80 * GIB)
    assert (usage.mfu, usage.sm_activity) == (None, None)


def test_the_models_arithmetic_is_held_against_the_devices_peak_for_the_format():
    facts = script_facts(device="cuda", call_flops=64 * 1e12)  # a micro-batch of 64
    usage = usage_of([result_of(98.94)], Settings(precision=Precision.BF16), facts, H100)
    assert usage.tflops == pytest.approx(98.94) and usage.peak_tflops == 989.4
    assert usage.mfu == pytest.approx(0.1)
    unknown = usage_of([result_of(98.94)], Settings(), facts, replace(H100, name="A card to come"))
    assert unknown.tflops == pytest.approx(98.94) and unknown.mfu is None


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla T4", "t4"),
        ("NVIDIA RTX A6000", None),
    ],
)
def test_a_card_is_known_by_the_devices_name(name, card):
    found = card_of(name)
    assert (found.name if found is not None else None) == card
    assert len({each.name for each in CARDS}) == len(CARDS)


def test_energy_is_saved_only_against_a_known_baseline():
    before = Usage(power_w=300.0, joules_per_sample=3.0)
    assert Usage(joules_per_sample=1.0).saving_over(before).saved_joules_per_hour == pytest.approx(200 * 3600)
    assert Usage(joules_per_sample=6.0).saving_over(before).saved_joules_per_hour == pytest.approx(-300 * 3600)
    for own, other in (
        (Usage(), before),
        (Usage(joules_per_sample=1.0), Usage()),
        (Usage(joules_per_sample=1.0), None),
    ):
        assert own.saving_over(other).saved_joules_per_hour is None


def test_every_card_names_the_makers_document():
    assert all(card.source for card in CARDS)
    for card in CARDS:
        peaks = [peak for peak in (card.half, card.tf32, card.fp32) if peak]
        assert peaks == sorted(peaks, reverse=True), card.name


def test_a_search_shows_the_use_of_the_machine_before_and_after_everywhere(folder):
    def measure(settings):
        shares = {"device_utilization": 0.9 - 0.2 * settings.num_workers, "own_cpus": 1.0 + settings.num_workers}
        around = Surroundings(window_s=2.0, usable_cpus=16.0, power_w=200.0, **shares)
        return replace(evaluate(by_workers, settings, 80 * GIB), surroundings=around)

    folder.runner.measure = measure
    result = folder.search()
    assert SearchResult.from_document(json.loads(json.dumps(result.document()))) == result
    rows = {name: (before, after) for name, before, after in usage_rows(result)}
    assert rows["GPU utilization"] == ("90%", "50%")
    assert rows["host cores"] == ("1.0 of 16", "3.0 of 16")
    assert rows["power, per sample"] == ("200 W, 2 J each", "200 W, 0.667 J each")
    assert rows["energy"] == ("-", "0.133 kWh less for what took an hour")
    for text in (summary(result, COMMANDS).plain, best_text(result, status="improved", is_final=True)):
        assert re.search(r"GPU utilization +90% +-> 50%\n", text) and WHY_LESS in text
    config = read_config(Path(result.config))
    assert (config.baseline_usage.device_utilization, config.usage.device_utilization) == (0.9, pytest.approx(0.5))
    assert config.usage.saved_joules_per_hour == pytest.approx(200 * 3600 * 2 / 3)
    assert config.baseline_usage.saved_joules_per_hour is None
