"""What a search tries on a Keras script, and what it says of torch's settings, and the other way round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import SearchSpaceError
from autotune.model.keras_facts import DataKind
from autotune.settings import SETTINGS, Settings
from autotune.space.derive import derive_space
from autotune.space.refusals import why_not_unedited
from autotune.space.script_settings import script_settings_of
from autotune.space.search_space import SearchSpace
from tests.unit.facts import cpu_machine, gpu_machine, keras_script_facts, script_facts, search_spec

OF_KERAS = {each.name for each in SETTINGS if "torch" not in each.frameworks_of_scripts}


def space_of(**changes: Any) -> SearchSpace:
    return derive_space(keras_script_facts(**changes), cpu_machine(cpus=4), search_spec())


def test_a_keras_script_is_searched_over_engines_and_the_compilation_of_its_step() -> None:
    space = space_of()
    assert set(space.allowed["keras_backend"]) == {"tensorflow", "jax", "torch"}
    assert set(space.allowed["jit_compile"]) == {"auto", "on", "off"}
    assert set(space.allowed["steps_per_execution"]) == {1, 2, 4, 8, 16}
    assert len(space.allowed["precision"]) == 2
    assert space.batch_per_device == 64


def test_no_setting_of_torch_is_tried_on_a_keras_script_nor_named_as_left_out() -> None:
    space = space_of()
    of_torch = {each.name for each in SETTINGS if each.frameworks_of_scripts == ("torch",)}
    assert all(len(space.allowed[name]) == 1 for name in of_torch)
    assert not of_torch & {name for name, _ in space.refused}


@pytest.mark.parametrize("machine", [cpu_machine(), gpu_machine()], ids=["cpu", "gpu"])
def test_no_setting_of_keras_is_tried_on_a_script_of_torch_nor_named_as_left_out(machine: Any) -> None:
    space = derive_space(script_facts(device=machine.device.kind), machine, search_spec())
    assert all(len(space.allowed[name]) == 1 for name in OF_KERAS)
    assert not OF_KERAS & {name.partition("=")[0] for name, _ in space.refused}


def test_a_user_who_asks_for_another_frameworks_setting_hears_why_not() -> None:
    spec = replace(search_spec(), ranges=(("pin_memory", "true,false"),))
    with pytest.raises(SearchSpaceError, match="for scripts that train by torch, and this script trains by Keras"):
        derive_space(keras_script_facts(), cpu_machine(), spec)
    spec = replace(search_spec(), fixed=(("jit_compile", "on"),))
    with pytest.raises(SearchSpaceError, match="for scripts that train by keras, and this script trains by torch"):
        derive_space(script_facts(), cpu_machine(), spec)


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"script_engines": ("tensorflow",)}, "keras_backend", "the script itself imports tensorflow"),
        ({"installed_engines": ("tensorflow", "jax")}, "keras_backend=torch", "the script's Python has no torch"),
        ({"runs_eagerly": True}, "jit_compile", "eagerly"),
        ({"has_batch_callbacks": True}, "steps_per_execution", "acts after every batch"),
        ({"trains_on_batch": True}, "steps_per_execution", "trains batch by batch"),
        ({"sets_policy": True}, "precision", "sets dtype policies by itself"),
        ({"own_train_step": True}, "batch_size", "train_step of its own"),
        ({"data": DataKind.TF_DATA}, "batch_size", "from the script's own data (tf.data)"),
        ({"accumulates": 4}, "batch_size", "accumulates by itself"),
        ({}, "tf_data_threads", "fit receives no tf.data dataset"),
        ({"data": DataKind.TF_DATA}, "dataset_workers", "fit receives no PyDataset"),
    ],
)
def test_what_cannot_be_changed_soundly_is_refused_by_name(changes: Any, name: str, reason: str) -> None:
    refused = dict(space_of(**changes).refused)
    assert reason in refused[name]


def test_the_data_decides_which_of_its_settings_are_tried() -> None:
    of_tf = space_of(data=DataKind.TF_DATA).allowed
    assert set(of_tf["tf_data_threads"]) == {0, 1, 2, 4, 8} and len(of_tf["tf_data_prefetch"]) == 2
    of_python = space_of(data=DataKind.PY_DATASET).allowed
    assert set(of_python["dataset_workers"]) == {1, 2, 3, 4, 6, 8} and len(of_python["dataset_queue"]) == 5


def test_a_loop_of_its_own_is_searched_by_knobs_and_arguments_alone() -> None:
    space = space_of(version="", data=DataKind.BATCHES, trains_on_batch=True)
    assert all(len(values) == 1 for name, values in space.allowed.items() if name != "engine_threads")


def test_a_config_of_keras_settings_is_applied_to_a_keras_script_alone() -> None:
    facts = keras_script_facts()
    own = script_settings_of(facts)
    changed = replace(own, keras_backend="jax", steps_per_execution=4, precision="bf16")  # type: ignore[arg-type]
    assert why_not_unedited(changed, own, facts) == {}
    own = script_settings_of(script_facts())
    assert why_not_unedited(replace(own, steps_per_execution=4), own, script_facts()).keys() == {"steps_per_execution"}


def test_torchs_engine_has_no_steps_per_execution_and_no_tuned_compilation() -> None:
    on_torch = Settings(keras_backend="torch", steps_per_execution=8, jit_compile="on")  # type: ignore[arg-type]
    plain = on_torch.canonical(device_is_cpu=True)
    assert (plain.steps_per_execution, plain.jit_compile) == (1, "auto")
