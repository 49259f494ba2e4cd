"""Every setting is whole: values, refusals, a way to apply, to undo and to read back, words for people, a row."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from autotune.emit.frameworks import FRAMEWORKS
from autotune.model.facts import BatchCopy
from autotune.model.keras_facts import DataKind
from autotune.settings import BY_NAME, SETTINGS, Group, Precision, Setting, Settings
from autotune.settings.cases import ScriptCase
from autotune.trial.apply.applied import SEAMS
from autotune.trial.apply.model_seams import MODEL_SEAMS
from tests.docs.settings_table import README
from tests.unit.facts import keras_script_facts, loader_facts, script_facts

BY_TRAINING = {"precision", "grad_accum_steps"}
"""Read back from what the training computes; tests/integration/trial trains scripts to see it."""

DETAILS = {name for seam in MODEL_SEAMS.values() for name in seam.details}
"""Ways in which a seam works."""

each = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)


def test_a_trial_loads_the_descriptions_of_settings_without_what_decides_on_them() -> None:
    program = "import json, sys, autotune.settings; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", program]
    loaded = set(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    assert not loaded & {"autotune.settings.cases", "autotune.space", "pkgutil", "torch", "pydantic"}


def test_the_registry_has_the_fields_of_settings_in_order() -> None:
    assert [field.name for field in fields(Settings)] == [*BY_NAME, "knobs"]


@each
def test_a_setting_has_the_default_of_its_field_and_values_around_it(setting: Setting) -> None:
    assert getattr(Settings(), setting.name) == setting.default
    assert setting.default in setting.domain or setting.group is Group.BATCH
    for value in setting.domain:
        own = Settings.from_dict({setting.name: value})
        assert own.to_dict()[setting.name] == value
        assert Settings.from_dict(own.to_short_dict()) == own
        assert own.to_short_dict().keys() <= {setting.name}


@each
def test_a_setting_says_of_every_script_whether_it_is_refused(setting: Setting) -> None:
    for changes in ({}, {"device": "cuda"}, {"loader": None}, {"claims": tuple(Group)}):
        facts = script_facts(**changes)  # type: ignore[arg-type]
        assert isinstance(setting.refused(ScriptCase(facts=facts, is_cpu=facts.device == "cpu")), str)


def _keras_case(data: DataKind) -> ScriptCase:
    return ScriptCase(facts=keras_script_facts(data=data), is_cpu=True)


@each
def test_a_setting_can_be_put_in_force(setting: Setting) -> None:
    ways = (
        setting.write,
        setting.environment,
        setting.read_of_loader,
        setting.write_to_optimizer,
        setting.keras is not None and any(setting.keras[:3]),
        setting.name in SEAMS,
        setting.name in MODEL_SEAMS,
        setting.name in DETAILS,
    )
    loader = loader_facts(is_shuffled=True)
    changes: dict[str, Any] = {
        "optimizer_forms": ("fused",),
        "num_repeated_blocks": 2,
        "batch_copy": BatchCopy.DIRECT,
        "notes": ("ddp",),
    }
    facts = script_facts(device="cuda", loader=loader, **changes)
    if "torch" not in setting.frameworks_of_scripts:
        kind = next(each for each in DataKind if not setting.refused(_keras_case(each)))
        facts = _keras_case(kind).facts
    has_seam = not setting.refused(ScriptCase(facts=facts, is_cpu=False))
    assert bool(any(ways)) is has_seam


@each
def test_a_setting_of_the_scripts_own_is_undone_or_left_alone(setting: Setting) -> None:
    """What only a model's seam or a wrapper switches on is refused, or never known to be the script's own."""
    seam = MODEL_SEAMS.get(setting.name)
    has_way_back = (
        setting.write
        or setting.write_to_optimizer
        or setting.environment
        or setting.read_of_loader
        or setting.name in BY_TRAINING
    )
    if has_way_back or (seam is not None and seam.undo is not None) or setting.is_capped:
        return
    on = script_facts(device="cuda", own_compile=True)
    case = ScriptCase(facts=on, is_cpu=False)
    assert setting.own(on) is None or setting.refused(case)


@each
def test_a_setting_is_read_back_or_says_why_not(setting: Setting) -> None:
    ways = (
        setting.read,
        setting.read_of_loader,
        setting.read_of_optimizer,
        setting.read_of_module,
        setting.name in MODEL_SEAMS,
        setting.name in DETAILS,
        setting.name in BY_TRAINING,
        setting.keras is not None,
    )
    assert bool(any(ways)) is not bool(setting.unseen)


def _keras_case(data: DataKind) -> ScriptCase:
    return ScriptCase(facts=keras_script_facts(data=data), is_cpu=True)


@each
def test_a_setting_can_be_put_in_force_by_hand(setting: Setting) -> None:
    assert setting.by_hand and not setting.by_hand.endswith(".")


@each
def test_a_setting_has_a_row_in_the_readme(setting: Setting) -> None:
    assert f"| `{setting.name}` |" in README.read_text()


@each
def test_a_setting_names_only_frameworks_that_there_are(setting: Setting) -> None:
    assert setting.frameworks.keys() <= FRAMEWORKS.keys()


OLD_FORMS: dict[str, Any] = {
    "num_workers": ("4", 4),
    "grad_accum_steps": ("2.25", 2.25),
    "pin_memory": ("True", True),
    "memory_fraction": ("0.9000", 0.9),
    "precision": ("bf16", "bf16"),
    "omp_wait_policy": ("passive", "passive"),
}


@pytest.mark.parametrize("name", OLD_FORMS)
def test_values_read_back_are_of_the_settings_type_and_text_of_older_results_too(name: str) -> None:
    text, value = OLD_FORMS[name]
    assert BY_NAME[name].reading(text) == BY_NAME[name].reading(value) == value
    assert type(BY_NAME[name].reading(text)) is type(value)


@pytest.mark.parametrize("seen", ["unknown, since none was built", "nan", "inf", "", True])
def test_what_is_no_number_is_no_reading(seen: object) -> None:
    assert BY_NAME["num_workers"].reading(seen) is None


def test_settings_that_a_search_may_change_are_not_refused_by_real_training() -> None:
    """The hand-kept tables disagreed on scripts that set torch's threads, or their share of the device's memory."""
    from autotune.space.refusals import why_not_unedited

    facts = script_facts(device="cuda", own_threads=True, own_memory_fraction=True)
    own = Settings(batch_size=64, precision=Precision.FP32)
    changed = replace(own, omp_wait_policy="passive", expandable_segments=True)  # type: ignore[arg-type]
    assert why_not_unedited(changed, own, facts) == {}
    assert set(why_not_unedited(replace(own, intra_op_threads=3, memory_fraction=0.5), own, facts)) == {
        "intra_op_threads",
        "memory_fraction",
    }
