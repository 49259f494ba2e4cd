"""Which of a script's options stand for settings: by name, by the value in force, and never by a guess between two."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from autotune.trial.probe.arguments import ArgumentDetector
from tests.unit.facts import loader_facts

KEY = "train.py:10~0#0"


class TrainingArguments:
    pass


class ScriptDetector(ArgumentDetector):
    """A detector that sees one parser."""

    def sees(self, options: dict[str, Any], *, of_trainer: bool = False) -> ScriptDetector:
        parser = argparse.ArgumentParser()
        if of_trainer:
            parser.dataclass_types = [TrainingArguments]  # type: ignore[attr-defined]
        for option, default in options.items():
            if default is False:
                parser.add_argument(option, action="store_true")
            elif isinstance(default, list):
                parser.add_argument(option, choices=default, default=default[0])
            else:
                parser.add_argument(option, type=type(default), default=default)
        self._wrap_parse(argparse.ArgumentParser.parse_known_args)(parser, [])
        return self

    def builds_a_loader_in(self, module: str) -> ScriptDetector:
        code = compile("built(key)", f"/somewhere/{module}.py", "exec")
        exec(code, {"__name__": module, "built": self.built, "key": KEY})
        return self

    def finds(self, **changes: Any) -> dict[str, tuple[str, bool]]:
        values = {"num_micro_batches": 1, "own_autocast": None, "targets_vary": False, **changes}
        found = self.facts(loader_facts(keys=(KEY,), batch_size=64, num_workers=2), **values)
        return {it.name: (it.template, it.is_taken) for it in found}


@pytest.fixture
def detector() -> ScriptDetector:
    return ScriptDetector()


def test_a_number_stands_for_a_setting_only_with_the_value_that_is_in_force(detector: ScriptDetector) -> None:
    found = detector.sees({"--batch-size": 64, "--workers": 3, "--grad_accum_steps": 1, "--seed": 64}).finds()
    assert found == {
        "batch_size": ("--batch-size={}", False),
        "grad_accum_steps": ("--grad_accum_steps={}", False),
    }


def test_of_two_options_for_one_setting_neither_is_meant(detector: ScriptDetector) -> None:
    assert detector.sees({"--batch-size": 64, "--train-batch-size": 64}).finds() == {}


def test_formats_are_found_by_switch_and_by_choice_unless_the_script_casts_already(detector: ScriptDetector) -> None:
    detector.sees({"--fp16": False, "--dtype": ["float32", "bfloat16"]})
    assert detector.finds() == {"precision.fp16": ("--fp16", False), "precision.bf16": ("--dtype=bfloat16", False)}
    assert detector.finds(own_autocast="float16") == {}


OF_TRAINER = {"--per_device_train_batch_size": 64, "--gradient_accumulation_steps": 1, "--dataloader_num_workers": 2}


def test_the_trainer_of_hugging_face_takes_batch_and_accumulation_together(detector: ScriptDetector) -> None:
    detector.sees(OF_TRAINER, of_trainer=True).builds_a_loader_in("transformers.trainer")
    assert {name for name, (_, is_taken) in detector.finds().items() if is_taken} == {
        *("batch_size", "grad_accum_steps", "num_workers"),
    }
    assert {name for name, (_, is_taken) in detector.finds(num_micro_batches=4).items() if is_taken} == {"num_workers"}


def test_where_accumulation_would_change_the_loss_it_is_left_to_the_user(detector: ScriptDetector) -> None:
    detector.sees(OF_TRAINER, of_trainer=True).builds_a_loader_in("transformers.trainer")
    found = detector.finds(targets_vary=True)
    assert found["batch_size"] == ("--per_device_train_batch_size={}", False)
    assert found["num_workers"][1]


def test_a_loader_that_the_script_builds_itself_does_not_take_the_trainers_arguments(detector: ScriptDetector) -> None:
    found = detector.sees(OF_TRAINER, of_trainer=True).builds_a_loader_in("train").finds()
    assert not any(is_taken for _, is_taken in found.values())
