"""A tuned config in the words of other frameworks: what is said, and that nothing is dropped in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from autotune.emit.export import export
from autotune.emit.frameworks import FRAMEWORKS
from autotune.emit.tuned_config import MemoryShares
from autotune.errors import ConfigError
from autotune.settings import OmpWaitPolicy, Precision, Settings
from autotune.settings.compile_mode import TIMED, CompileMode
from autotune.settings.multiprocessing_context import StartMethod
from autotune.settings.optimizer_form import OptimizerForm

from .example import FACTS, NATURAL, TUNED, tuned_config, tuned_configs

EVERYTHING = replace(
    TUNED,
    expandable_segments=True,
    cudnn_benchmark=True,
    channels_last=True,
    compile=True,
    non_blocking=True,
    stream_prefetch=True,
    intra_op_threads=3,
)


def left_out(framework: str, **changes: Any) -> set[str]:
    """Names of the settings that the framework does not take."""
    return {sentence.partition("=")[0] for sentence in FRAMEWORKS[framework](tuned_config(**changes)).left_out}


OUTSIDE = {"memory_fraction", "expandable_segments", "channels_last", "stream_prefetch", "intra_op_threads"}
OUTSIDE |= {"omp_wait_policy", "storage"}
LOADER = {"num_workers", "prefetch_factor", "pin_memory", "persistent_workers"}


@pytest.mark.parametrize(
    ("framework", "more"),
    [
        ("hf", {"cudnn_benchmark"}),
        ("lightning", {"compile"}),
        ("accelerate", {"cudnn_benchmark"}),
        ("deepspeed", {"cudnn_benchmark", "compile", *LOADER}),
    ],
)
def test_what_a_framework_cannot_take_is_named(framework: str, more: set[str]) -> None:
    assert left_out(framework, settings=EVERYTHING) == OUTSIDE | more
    for name in OUTSIDE | more:
        assert f"NOT in here: {name}=" in export(tuned_config(settings=EVERYTHING), framework)


def test_what_a_script_does_itself_and_is_faster_without_is_named_as_to_be_left_out() -> None:
    script = replace(tuned_config().script, natural=replace(NATURAL, channels_last=True))
    config = replace(tuned_config(settings=replace(TUNED, channels_last=False)), script=script)
    assert "channels_last=false: leave out model.to(memory_format=torch.channels_last)." in (
        FRAMEWORKS["hf"](config).left_out
    )


def test_copies_that_do_not_wait_are_named_where_no_stream_of_their_own_is() -> None:
    assert "non_blocking" in left_out("deepspeed", settings=replace(TUNED, non_blocking=True))
    assert "non_blocking" not in left_out("deepspeed", settings=EVERYTHING)


def test_hydra_says_every_setting_but_two_must_be_set_before_python_starts() -> None:
    assert left_out("hydra", settings=EVERYTHING) == {"expandable_segments", "omp_wait_policy"}


@pytest.mark.parametrize("framework", ["hf", "lightning", "accelerate", "deepspeed", "hydra"])
def test_settings_that_are_torchs_and_the_scripts_own_are_not_worth_a_word(framework: str) -> None:
    own = replace(NATURAL, knobs=())
    changes = {"settings": own, "script_natural": own, "script_facts": replace(FACTS, device="cpu")}
    assert left_out(framework, **changes, memory=MemoryShares()) == set()


def test_a_setting_that_the_search_took_away_is_named_too() -> None:
    script_settings = replace(NATURAL, omp_wait_policy=OmpWaitPolicy.PASSIVE)
    found = left_out(
        "hf", settings=replace(TUNED, omp_wait_policy=OmpWaitPolicy.DEFAULT), script_natural=script_settings
    )
    assert "omp_wait_policy" in found


def test_the_guard_of_the_cap_is_named_though_the_whole_device_was_asked_for() -> None:
    sentences = FRAMEWORKS["hf"](tuned_config(settings=replace(TUNED, memory_fraction=1.0))).left_out
    assert "memory_fraction=0.9: call torch.cuda.set_per_process_memory_fraction." in sentences


@pytest.mark.parametrize("framework", ["lightning", "accelerate", "deepspeed"])
def test_tf32_is_torchs_own_switch_where_the_framework_has_none(framework: str) -> None:
    assert "precision" in left_out(framework, settings=replace(TUNED, precision=Precision.TF32))


def test_the_trainer_of_hugging_face_turns_tf32_on_only_where_it_was_measured() -> None:
    for precision, expected in ((Precision.TF32, True), (Precision.FP32, False), (Precision.BF16, None)):
        values = FRAMEWORKS["hf"](tuned_config(settings=replace(TUNED, precision=precision))).values
        assert values.get("tf32") is expected


def test_a_batch_that_nobody_saw_is_named() -> None:
    config = tuned_config(settings=replace(TUNED, batch_size=None))
    assert "NOT in here: batch_size: it is the script's own" in export(config, "hf")
    assert "per_device_train_batch_size" not in FRAMEWORKS["hf"](config).values


def test_hydra_cannot_take_a_text_that_it_would_interpolate() -> None:
    with pytest.raises(ConfigError, match=r"\$\{oc\.env:HOME\}"):
        export(tuned_config(settings=replace(TUNED, knobs=(("storage", "${oc.env:HOME}"),))), "hydra")


def test_two_keys_of_hydra_that_exclude_each_other_are_refused() -> None:
    maps = {"num_workers": "data={}", "batch_size": "data.batch={}"}
    with pytest.raises(ConfigError, match="data"):
        export(tuned_config(script_maps=maps), "hydra")


@hypothesis_settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tuned_configs())
def test_whatever_was_tuned_is_data_to_every_reader(config: Any) -> None:
    for framework in FRAMEWORKS:
        try:
            text = export(config, framework)
        except ConfigError:
            assert framework == "hydra"
            continue
        values = json.loads(text) if framework == "deepspeed" else yaml.safe_load(text)
        assert {name: value for name, value in values.items() if name != "autotune" or framework == "hydra"} == (
            FRAMEWORKS[framework](config).values
        )


def test_the_first_line_for_hydra_names_the_package() -> None:
    assert export(tuned_config(), "hydra").startswith("# @package _global_\n")


def test_an_effective_batch_that_is_known_is_said() -> None:
    assert "the effective batch is 64;" in export(tuned_config(), "hf")
    assert "the effective batch is 128;" in export(tuned_config(provenance_world_size=2), "hf")
    assert Settings().batch_size is None and "effective batch" not in export(tuned_config(settings=Settings()), "hf")


@pytest.mark.parametrize(("optimizer", "name"), [("AdamW", "adamw_torch_fused"), ("SGD", None)])
def test_the_trainer_is_told_the_form_of_adamw_alone(optimizer: str, name: str | None) -> None:
    """The Trainer's name of a form brings its optimizer along."""
    changes: dict[str, Any] = {
        "settings": replace(TUNED, optimizer_form=OptimizerForm.FUSED),
        "script_facts": replace(FACTS, optimizer=optimizer),
    }
    assert FRAMEWORKS["hf"](tuned_config(**changes)).values.get("optim") == name
    assert ("optimizer_form" in left_out("hf", **changes)) is (name is None)


RANKS = replace(TUNED, bucket_mb=50, static_graph=True, gradient_as_bucket_view=True)


@pytest.mark.parametrize("framework", ["lightning", "accelerate"])
def test_objects_that_wrap_a_model_for_ranks_are_told_all_arguments(framework: str) -> None:
    found = FRAMEWORKS[framework](tuned_config(settings=RANKS))
    assert found.values["ddp"] == {"bucket_cap_mb": 50, "static_graph": True, "gradient_as_bucket_view": True}
    assert any("**tuned['ddp']" in note for note in found.notes)
    assert "ddp" not in FRAMEWORKS[framework](tuned_config()).values


def test_the_trainer_is_told_the_arguments_of_ranks_with_a_name_there() -> None:
    found = FRAMEWORKS["hf"](tuned_config(settings=RANKS))
    assert (found.values["ddp_bucket_cap_mb"], found.values["ddp_static_graph"]) == (50, True)
    assert any("lack ddp_static_graph" in note for note in found.notes)
    assert left_out("hf", settings=RANKS) & {"bucket_mb", "static_graph", "gradient_as_bucket_view"} == {
        "gradient_as_bucket_view"
    }


@pytest.mark.parametrize(
    ("mode", "trainer", "plugin"),
    [
        (CompileMode.DEFAULT, None, {}),
        (CompileMode.REGIONAL, None, {"use_regional_compilation": True}),
        *((mode, mode.value, {"mode": mode.value}) for mode in (CompileMode.REDUCE_OVERHEAD, *TIMED)),
    ],
)
def test_the_mode_of_compilation_has_its_argument(
    mode: CompileMode, trainer: str | None, plugin: dict[str, Any]
) -> None:
    config = tuned_config(settings=replace(TUNED, compile=True, compile_mode=mode))
    hf, accelerate = FRAMEWORKS["hf"](config), FRAMEWORKS["accelerate"](config)
    assert (hf.values["torch_compile"], hf.values.get("torch_compile_mode")) == (True, trainer)
    assert accelerate.values["dynamo_plugin"] == {"backend": "inductor", **plugin}
    assert ("compile_mode" in left_out("hf", settings=config.settings)) is (mode is CompileMode.REGIONAL)


@pytest.mark.parametrize(
    ("changes", "release"),
    [({}, "1.1"), ({"compile": True}, "1.2"), ({"compile": True, "compile_mode": CompileMode.REGIONAL}, "1.7")],
)
def test_the_release_of_accelerate_is_the_first_with_the_arguments(changes: dict[str, Any], release: str) -> None:
    notes = FRAMEWORKS["accelerate"](tuned_config(settings=replace(TUNED, **{"compile": False, **changes}))).notes
    assert notes[0].startswith(f"For Accelerate {release} or later:")


def test_checkpointed_blocks_are_of_the_measured_kind_in_the_trainer() -> None:
    values = FRAMEWORKS["hf"](tuned_config(settings=replace(TUNED, activation_checkpointing=True))).values
    assert values["gradient_checkpointing"] is True
    assert values["gradient_checkpointing_kwargs"] == {"use_reentrant": False}


@pytest.mark.parametrize("framework", ["lightning", "accelerate"])
def test_rare_arguments_of_the_loader_stand_beside_the_usual_ones(framework: str) -> None:
    changed = replace(TUNED, in_order=False, multiprocessing_context=StartMethod.SPAWN)
    loader = FRAMEWORKS[framework](tuned_config(settings=changed)).values["loader"]
    assert (loader["in_order"], loader["multiprocessing_context"]) == (False, "spawn")
    assert not {"in_order", "multiprocessing_context"} & FRAMEWORKS[framework](tuned_config()).values["loader"].keys()
    values = FRAMEWORKS["hf"](tuned_config(settings=changed)).values
    assert (values["dataloader_in_order"], values["dataloader_multiprocessing_context"]) == (False, "spawn")
