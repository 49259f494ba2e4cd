"""Variables that speak to autotune alone never reach the user's script: the storage may hold a password."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.protocol.job import Mode
from autotune.protocol.paths import TrialPaths
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import choose_device
from autotune.sandbox.workspace import Workspace
from autotune.settings import GROUP_OF_FIELD, Settings
from autotune.spec import without_ours
from autotune.study.apply import run_command
from tests.jobs import changed
from tests.unit.emit.example import tuned_config
from tests.unit.facts import script_facts
from tests.unit.runner.test_environment import JOB

OURS = ("AUTOTUNE_STORAGE", "AUTOTUNE_STUDY_FILE", "AUTOTUNE_MEMORY_CAP", "AUTOTUNE_ANYTHING")
OF_SCRIPTS = ("AUTOTUNE_NUM_WORKERS", "AUTOTUNE_KNOB_STORAGE", "HOME", "AUTOTUNES")


def test_a_script_keeps_its_own_variables_and_exported_settings_and_loses_ours() -> None:
    environ = dict.fromkeys((*OURS, *OF_SCRIPTS), "x")
    assert without_ours(environ, GROUP_OF_FIELD) == dict.fromkeys(OF_SCRIPTS, "x")


@pytest.mark.parametrize("mode", [Mode.PROBE, Mode.TRIAL])
def test_neither_probe_nor_trial_sees_ours(mode: Mode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in OURS:
        monkeypatch.setenv(name, "postgresql://ada:s3cret@db/x")
    runner = ColdRunner(Workspace(tmp_path, ()), choose_device("cpu"))
    job = changed(JOB, settings=Settings(), script_settings=Settings(), facts=script_facts())
    environment = runner.environment(replace(job, mode=mode), TrialPaths(runner.workspace.new_trial()))
    assert "s3cret" not in "".join(environment.values())
    assert not set(OURS) & set(environment)


def test_real_training_does_not_see_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in OURS:
        monkeypatch.setenv(name, "postgresql://ada:s3cret@db/x")
    config = tuned_config(script_facts=script_facts())
    _, environment = run_command(config, ("python", "train.py"), tmp_path, share=False)
    assert not set(OURS) & set(environment)
