"""Only arguments that can change something in this search are named to the user."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.model.facts import ArgumentFacts
from autotune.space.derive import Machine
from autotune.space.offers import useful_arguments
from tests.unit.facts import cpu_machine, gpu_machine, loader_facts, script_facts, search_spec


def offered(name: str, template: str, machine: Machine, **facts: Any) -> bool:
    """Whether this one argument is offered on a machine, to a script of these facts."""
    argument = ArgumentFacts(name=name, template=template, is_taken=False)
    return bool(useful_arguments(script_facts(arguments=(argument,), **facts), machine, search_spec()))


@pytest.mark.parametrize(
    ("name", "template", "on_cpu", "on_gpu"),
    [
        ("precision.fp16", "--amp", False, True),
        ("precision.bf16", "--dtype=bfloat16", True, True),
        ("pin_memory.true", "--pin-memory", False, True),
        ("num_workers", "--workers={}", True, True),
        ("channels_last.true", "--channels-last", True, True),
        ("batch_size", "--batch-size={}", True, True),
    ],
)
def test_an_argument_is_offered_where_its_value_can_be_searched(
    name: str, template: str, on_cpu: bool, on_gpu: bool
) -> None:
    assert offered(name, template, cpu_machine()) is on_cpu
    assert offered(name, template, gpu_machine(), device="cuda") is on_gpu


def test_a_format_that_the_device_lacks_is_not_offered() -> None:
    assert not offered("precision.bf16", "--bf16", gpu_machine(capability=(7, 0)), device="cuda")


def test_a_batch_size_is_not_offered_of_a_model_whose_batch_stays_whole() -> None:
    assert not offered("batch_size", "--batch-size={}", cpu_machine(), num_batch_norms=5)


def test_a_batch_of_one_sample_has_nothing_to_offer() -> None:
    assert not offered("batch_size", "--batch-size={}", cpu_machine(), loader=loader_facts(batch_size=1))


def test_batch_and_accumulation_of_a_script_without_a_loader_are_offered_together() -> None:
    """Each argument alone is refused, so that nanoGPT was told of --map, and never which."""
    batch = ArgumentFacts(name="batch_size", template="--batch_size={}", is_taken=False)
    steps = ArgumentFacts(name="grad_accum_steps", template="--gradient_accumulation_steps={}", is_taken=False)
    own = {"loader": None, "argument_batch": 12, "num_micro_batches_per_step": 40, "num_backwards_per_step": 40}
    both = script_facts(arguments=(batch, steps), **own)
    assert useful_arguments(both, cpu_machine(), search_spec()) == (batch, steps)
    assert useful_arguments(script_facts(arguments=(batch,), **own), cpu_machine(), search_spec()) == ()


def test_an_argument_in_use_is_named() -> None:
    taken = ArgumentFacts(name="num_workers", template="--workers={}", is_taken=True)
    assert useful_arguments(script_facts(arguments=(taken,)), cpu_machine(), search_spec()) == (taken,)
