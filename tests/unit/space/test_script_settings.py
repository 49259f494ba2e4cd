"""The script's own settings: from what the probe read, and from what its own trial showed otherwise."""

from __future__ import annotations

import pytest

from autotune.settings import Precision, Settings
from autotune.space.script_settings import misread, script_settings_of, with_readings
from tests.unit.facts import loader_facts, script_facts

NATURAL = Settings(batch_size=64, intra_op_threads=2)


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ({"intra_op_threads": "16"}, {"intra_op_threads": "16"}),
        ({"channels_last": "True", "precision": "tf32"}, {"channels_last": "True", "precision": "tf32"}),
        ({"batch_size": "64", "intra_op_threads": "2", "precision": "fp32", "channels_last": "False"}, {}),
        ({"prefetch_factor": "4", "persistent_workers": "True"}, {}),
        ({"num_workers": "4", "prefetch_factor": "4"}, {"num_workers": "4", "prefetch_factor": "4"}),
        ({"num_workers": "unknown, since none was built", "grad_accum_steps": "1.25"}, {}),
        ({"batch_size": "0", "intra_op_threads": "999999", "channels_last": "maybe", "lr": "0.1"}, {}),
        ({"memory_fraction": "0.5"}, {}),
    ],
)
def test_a_reading_that_is_a_value_and_another_one_was_misread(seen: dict[str, str], found: dict[str, str]) -> None:
    assert misread(NATURAL, [seen], device_is_cpu=False) == found


def test_what_does_nothing_on_a_cpu_is_not_misread_there() -> None:
    seen = {"pin_memory": "True", "cudnn_benchmark": "True"}
    assert misread(NATURAL, [seen], device_is_cpu=True) == {}
    assert misread(NATURAL, [seen], device_is_cpu=False) == seen


def test_processes_that_differ_correct_nothing() -> None:
    assert misread(NATURAL, [{"intra_op_threads": "4"}, {"intra_op_threads": "8"}], device_is_cpu=True) == {}
    assert misread(NATURAL, [{"intra_op_threads": "4"}] * 2, device_is_cpu=True) == {"intra_op_threads": "4"}
    assert misread(NATURAL, [], device_is_cpu=True) == {}


def test_what_the_scripts_own_trial_showed_holds() -> None:
    facts = with_readings(script_facts(), {"channels_last": "True", "precision": "tf32", "intra_op_threads": "16"})
    script_settings = script_settings_of(facts)
    assert (script_settings.channels_last, script_settings.precision, script_settings.intra_op_threads) == (
        True,
        Precision.TF32,
        16,
    )
    assert script_settings_of(with_readings(facts, {"channels_last": "False"})).channels_last is False


def test_an_accumulation_that_the_trial_showed_is_the_scripts_own() -> None:
    facts = with_readings(script_facts(loader=loader_facts()), {"grad_accum_steps": "4"})
    assert facts.num_micro_batches_per_step == script_settings_of(facts).grad_accum_steps == 4
