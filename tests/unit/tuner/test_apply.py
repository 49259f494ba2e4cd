"""A tuned config applied to an unedited script: under the rules of a search, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import ConfigError
from autotune.model.facts import LossReduction
from autotune.settings import Group, Settings
from autotune.tuner.apply import run_command
from tests.unit.emit.example import tuned_config
from tests.unit.facts import script_facts

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
    assert {name: job["settings"][name] for name in settings} == settings
