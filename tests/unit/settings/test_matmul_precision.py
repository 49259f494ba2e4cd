"""Accuracy of fp32 products: switched, read back, inert beside other formats, and held to parity with fp32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from autotune.measure.loss_parity import LossReference
from autotune.model.outcome import Outcome
from autotune.settings import Precision, Settings
from autotune.settings.matmul_precision import SETTING, MatmulPrecision
from autotune.space.derive import derive_space
from autotune.verdict.judge import judge
from tests.unit.facts import cpu_machine, gpu_machine, script_facts, search_spec
from tests.unit.runner.samples import ending, job, rank

LOSSES = (2.3, 2.2, 2.1, 2.0)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("value", MatmulPrecision)
def test_a_value_is_read_back_and_undone(value: MatmulPrecision) -> None:
    assert SETTING.write is not None and SETTING.read is not None
    SETTING.write(value)
    assert torch.get_float32_matmul_precision() == SETTING.read() == value.value
    SETTING.write(MatmulPrecision.HIGHEST)
    assert SETTING.read() == "highest"


def test_a_number_format_decides_in_place_of_the_accuracy() -> None:
    medium = Settings(matmul_precision=MatmulPrecision.MEDIUM)
    assert medium.canonical(device_is_cpu=True) == medium
    half = replace(medium, precision=Precision.BF16)
    assert half.canonical(device_is_cpu=True).matmul_precision is MatmulPrecision.HIGHEST


def test_a_search_tries_medium_on_a_cpu_and_leaves_cuda_to_tf32() -> None:
    on_cpu = derive_space(script_facts(), cpu_machine(), search_spec())
    assert on_cpu.allowed["matmul_precision"] == ("highest", "medium")
    on_cuda = derive_space(script_facts(device="cuda"), gpu_machine(), search_spec())
    assert on_cuda.allowed["matmul_precision"] == ("highest",)
    assert "precision=tf32 is high" in dict(on_cuda.refused)["matmul_precision"]


@pytest.mark.parametrize(
    ("own", "allowed"),
    [("high", ("high", "medium")), ("medium", ("highest", "medium")), ("highest", ("highest", "medium"))],
)
def test_on_a_cpu_high_and_highest_are_one_value(own: str, allowed: tuple[str, ...]) -> None:
    """Two of six trials of a public script with `allow_tf32` went to `highest` on a CPU."""
    space = derive_space(script_facts(own_matmul_precision=own), cpu_machine(), search_spec())
    assert space.script_settings.matmul_precision == own
    assert space.allowed["matmul_precision"] == allowed


def test_on_cuda_the_number_format_tells_the_accuracy_of_a_script_with_tf32() -> None:
    facts = script_facts(device="cuda", precision="tf32", own_matmul_precision="high")
    space = derive_space(facts, gpu_machine(), search_spec())
    assert space.script_settings.matmul_precision is MatmulPrecision.HIGHEST
    assert replace(space.script_settings, precision=Precision.FP32).matmul_precision is MatmulPrecision.HIGHEST


def test_settings_of_a_study_from_before_are_read_with_the_highest_accuracy() -> None:
    assert Settings.from_dict({"precision": "tf32"}).matmul_precision is MatmulPrecision.HIGHEST


@pytest.mark.parametrize(("last", "outcome"), [(2.01, Outcome.OK), (2.2, Outcome.INVALID)])
def test_losses_are_held_to_those_of_full_accuracy(last: float, outcome: Outcome) -> None:
    settings = Settings(batch_size=64, matmul_precision=MatmulPrecision.MEDIUM)
    batches = (7,) * len(LOSSES)
    observed = {"matmul_precision": "medium"}
    report = rank(first_losses=(*LOSSES[:3], last), first_batches=batches, start_digest="same", observed=observed)
    references = (LossReference(start_digest="same", losses=LOSSES, batches=batches),)
    verdict = judge(job(settings=settings, references=references), ending(), [report])
    assert verdict.outcome is outcome
    assert outcome is Outcome.OK or "medium" in verdict.reason
