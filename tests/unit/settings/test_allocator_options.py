"""Options of CUDA's caching allocator: the user's stay in a trial, in real training and in what is exported."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.emit.export import export
from autotune.runner import devices as device_module
from autotune.settings import Settings
from autotune.settings.unused_blocks import UnusedBlocks, blocks_in
from autotune.space.script_settings import script_settings_of
from autotune.study import apply as apply_module
from autotune.study.apply import run_command
from autotune.study.jobs import Jobs
from autotune.study.target import make_target
from tests.unit.emit.example import tuned_config
from tests.unit.facts import gpu_machine, script_facts, search_spec

OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
ON = Settings(batch_size=64, expandable_segments=True)


@pytest.fixture(autouse=True)
def _no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (OLD, NEW):
        monkeypatch.delenv(name, raising=False)


def of_trial(monkeypatch: pytest.MonkeyPatch, **changes: bool) -> dict[str, str]:
    """Variables of a trial on a GPU, with the script's own settings but for some."""
    facts, spec = script_facts(device="cuda"), search_spec(memory_cap="4GiB")
    own = script_settings_of(facts)
    jobs = Jobs(spec=spec, target=make_target(spec, gpu_machine().device), facts=facts, script_settings=own)
    return dict(jobs.trial(replace(own, **changes)).environment)


def of_run(monkeypatch: pytest.MonkeyPatch, **changes: bool) -> dict[str, str]:
    """Variables of real training under a tuned config."""
    monkeypatch.setattr(apply_module, "cuda_devices", lambda: (gpu_machine().device,))
    monkeypatch.setattr(device_module, "cuda_devices", lambda: (gpu_machine().device,))
    own = Settings(batch_size=64)
    config = tuned_config(
        settings=replace(own, **changes), script_natural=own, script_maps={}, script_facts=script_facts(device="cuda")
    )
    return run_command(config, ("python", "train.py"), Path("/tmp"), share=False)[1]


def of_export(monkeypatch: pytest.MonkeyPatch, **changes: bool) -> dict[str, str]:
    """Variables of an exported config."""
    text = export(tuned_config(settings=replace(Settings(batch_size=64), **changes)), "env")
    return dict(word.split("=", 1) for word in shlex.split(text) if "=" in word)


WAYS = pytest.mark.parametrize("way", [of_trial, of_run, of_export])


@WAYS
def test_the_users_options_of_the_allocator_stay_beside_the_segments(way, monkeypatch) -> None:
    monkeypatch.setenv(OLD, "max_split_size_mb:512,roundup_power2_divisions:[256:1,512:2]")
    found = way(monkeypatch, expandable_segments=True)
    wanted = "max_split_size_mb:512,roundup_power2_divisions:[256:1,512:2],expandable_segments:True"
    assert found[OLD] == wanted
    assert found[NEW] == wanted, "later torch reads this name first, and warns of the other alone"


@WAYS
def test_options_under_the_later_name_stay_too(way, monkeypatch) -> None:
    monkeypatch.setenv(NEW, "max_split_size_mb:512")
    found = way(monkeypatch, expandable_segments=True)
    assert found[NEW] == "max_split_size_mb:512,expandable_segments:True"
    assert "expandable_segments:True" in found[OLD], "torch 2.9 reads the segments under this name alone"


@WAYS
def test_an_option_that_says_otherwise_is_replaced(way, monkeypatch) -> None:
    monkeypatch.setenv(OLD, "expandable_segments:False, max_split_size_mb:512")
    assert way(monkeypatch, expandable_segments=True)[OLD] == "max_split_size_mb:512,expandable_segments:True"


@pytest.mark.parametrize("way", [of_trial, of_export])
def test_nothing_is_said_of_the_allocator_where_nothing_is_asked(way, monkeypatch) -> None:
    monkeypatch.setenv(OLD, "max_split_size_mb:512")
    assert not {OLD, NEW} & way(monkeypatch, pin_memory=True).keys()


def test_segments_that_the_user_has_on_are_switched_off_in_a_trial_without_them(monkeypatch) -> None:
    monkeypatch.setenv(NEW, "expandable_segments:True")
    facts, spec = script_facts(device="cuda"), search_spec(memory_cap="4GiB")
    own = replace(script_settings_of(facts), expandable_segments=True)
    jobs = Jobs(spec=spec, target=make_target(spec, gpu_machine().device), facts=facts, script_settings=own)
    trial = jobs.trial(replace(own, expandable_segments=False))
    assert dict(trial.environment)[NEW] == "expandable_segments:False"


@WAYS
@pytest.mark.parametrize(
    ("blocks", "option"), [("collect", "garbage_collection_threshold:0.8"), ("whole", "max_split_size_mb:256")]
)
def test_the_treatment_of_unused_blocks_joins_the_users_options(monkeypatch, way, blocks, option) -> None:
    monkeypatch.setenv(OLD, "roundup_power2_divisions:[256:1,512:2]")
    found = way(monkeypatch, unused_blocks=UnusedBlocks(blocks))
    assert found[OLD] == found[NEW] == f"roundup_power2_divisions:[256:1,512:2],{option}"
    assert blocks_in(found) is UnusedBlocks(blocks)


def test_segments_that_grow_leave_no_blocks_to_treat() -> None:
    both = replace(ON, unused_blocks=UnusedBlocks.WHOLE)
    assert both.canonical(device_is_cpu=False) == ON
    assert blocks_in({OLD: "max_split_size_mb:512"}) is UnusedBlocks.KEEP
