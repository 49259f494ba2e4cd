"""A tuned config applied to an unedited script: under the rules of a search, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import ConfigError, HostError, UsageError
from autotune.host import DeviceInfo
from autotune.model.facts import LossReduction
from autotune.runner import devices as device_module
from autotune.settings import Group, Settings
from autotune.study import apply as apply_module
from autotune.study.apply import run_command
from autotune.units import GIB
from tests.unit.emit.example import tuned_config
from tests.unit.facts import gpu_machine, script_facts

NATURAL = Settings(batch_size=64, intra_op_threads=2)
SPLIT: dict[str, Any] = {"batch_size": 16, "grad_accum_steps": 4}


def command_of(
    settings: dict[str, Any], facts: dict[str, Any], **script: Any
) -> tuple[tuple[str, ...], dict[str, str]]:
    config = tuned_config(
        settings=Settings.from_dict({**NATURAL.to_dict(), **settings}),
        script_natural=NATURAL,
        script_maps=script.pop("maps", {}),
        script_facts=script_facts(**facts),
        **{f"script_{name}": value for name, value in script.items()},
    )
    return run_command(config, ("python", "train.py"), Path("/tmp"), share=False, path="tuned.yaml")


@pytest.mark.parametrize(
    ("settings", "facts", "reason", "line"),
    [
        (SPLIT, {"uses_closure": True}, "with a closure", "cfg.backward(loss, optimizer)"),
        (SPLIT, {"num_batch_norms": 2}, "2 BatchNorm layers", "for x, y in autotune.micro_batches(loader):"),
        (SPLIT, {"loss_reduction": LossReduction.TOKEN_MEAN}, "a mean over targets", "**cfg.loader_kwargs()"),
        ({"precision": "bf16"}, {"own_autocast": "float16"}, "its own autocast (float16)", "with cfg.autocast():"),
        ({"num_workers": 4}, {"loader": None}, "no torch DataLoader", "**cfg.loader_kwargs()"),
        ({"num_workers": 4}, {"notes": ("unguarded_spawn",)}, "started by spawn", "**cfg.loader_kwargs()"),
        ({"compile": True}, {"num_root_modules": 2}, "2 modules side by side", "model = cfg.prepare(model)"),
        ({"intra_op_threads": 1}, {"own_threads": True}, "number of threads", "model = cfg.prepare(model)"),
    ],
)
def test_what_a_search_refuses_is_refused_with_the_lines_to_write_instead(
    settings: dict[str, Any], facts: dict[str, Any], reason: str, line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        command_of(settings, facts)
    name = next(iter(settings))
    assert f"tuned.yaml cannot be applied to train.py as it is: {name} {settings[name]}: " in caught.value.message
    assert reason in caught.value.message
    assert 'cfg = autotune.load("tuned.yaml")' in caught.value.hint
    assert line in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "facts", "script"),
    [
        (SPLIT, {}, {}),
        (SPLIT, {"num_batch_norms": 2}, {"splits_batch_norm": True}),
        ({}, {"uses_closure": True, "own_autocast": "float16", "own_threads": True, "loader": None}, {}),
        ({"precision": "bf16"}, {"own_autocast": "float16"}, {"maps": {"precision": "--amp={}"}}),
        ({"compile": True}, {"num_root_modules": 2, "claims": (Group.KERNELS,)}, {}),
        ({"pin_memory": True}, {"loader": None}, {}),
    ],
    ids=["a split", "BatchNorm that may", "the script's own", "mapped", "claimed", "inert on a CPU"],
)
def test_what_is_sound_is_started(settings: dict[str, Any], facts: dict[str, Any], script: dict[str, Any]) -> None:
    command, environment = command_of(settings, facts, **script)
    assert command[:2] == ("python", "train.py")
    job = json.loads(environment["AUTOTUNE_JOB"])
    assert (job["mode"], job["config"]) == ("run", "tuned.yaml")
    assert {name: job["request"]["settings"][name] for name in settings} == settings


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> tuple[DeviceInfo, ...]:
    """Two devices of this machine; the second is the freer one."""
    first = replace(gpu_machine().device, uuid="GPU-0", free_bytes=40 * GIB)
    shown = (first, replace(first, uuid="GPU-1", free_bytes=70 * GIB))
    for module in (device_module, apply_module):
        monkeypatch.setattr(module, "cuda_devices", lambda: shown)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return shown


def shown_in_run(num_devices: int = 1, device: str = "auto", **changes: Any) -> str | None:
    """The devices that real training sees, of a config that was measured on so many."""
    facts = script_facts(device="cuda", world_size=changes.get("provenance_world_size", 1))
    config = tuned_config(settings=NATURAL, script_natural=NATURAL, script_maps={}, script_facts=facts, **changes)
    host = replace(config.provenance.host, num_devices=num_devices)
    config = replace(config, provenance=replace(config.provenance, host=host))
    _, environment = run_command(config, ("python", "train.py"), Path("/tmp"), share=False, device=device)
    return environment.get("CUDA_VISIBLE_DEVICES")


def test_what_was_measured_on_one_device_trains_on_one(gpus: tuple[DeviceInfo, ...]) -> None:
    assert shown_in_run() == "GPU-1"
    assert shown_in_run(device="cuda:0") == "GPU-0"


def test_processes_that_a_script_starts_by_itself_get_as_many_devices_as_in_the_trials(
    gpus: tuple[DeviceInfo, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_ranks: dict[str, Any] = {"provenance_world_size": 2, "script_num_processes_per_node": 1}
    assert shown_in_run(2, **of_ranks) is None  # All that there are, in the order in which they are.
    with pytest.raises(UsageError, match="measured on 2 GPUs"):
        shown_in_run(2, device="cuda:0", **of_ranks)
    third = (*gpus, replace(gpus[0], uuid="GPU-2", free_bytes=60 * GIB))
    for module in (device_module, apply_module):
        monkeypatch.setattr(module, "cuda_devices", lambda: third)
    assert shown_in_run(2, **of_ranks) == "GPU-1,GPU-2"
    for module in (device_module, apply_module):
        monkeypatch.setattr(module, "cuda_devices", lambda: gpus[:1])
    with pytest.raises(HostError, match="starts 2 processes by itself"):
        shown_in_run(2, **of_ranks)


def test_a_config_of_a_gpu_does_not_run_on_the_cpu(gpus: tuple[DeviceInfo, ...]) -> None:
    with pytest.raises(UsageError, match="measured on a GPU"):
        shown_in_run(device="cpu")


def test_without_a_driver_that_is_asked_the_script_sees_what_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_module, "cuda_devices", lambda: ())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert shown_in_run() is None
