"""Variables of a trial's process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import choose_device
from autotune.sandbox.workspace import Workspace
from tests.jobs import job_of

JOB = job_of(
    mode=Mode.PROBE,
    command=("python", "train.py"),
    cwd="/",
    settings=None,
    script_settings=None,
    facts=None,
    cap_bytes=1 << 30,
    window=WindowRule(half_width_ratio=0.05),
    start_limit_s=60.0,
    total_limit_s=60.0,
)


def compiler_caches(tmp_path: Path, job: TrialJob) -> list[str | None]:
    """Where the compilers of two trials cache."""
    workspace = Workspace(tmp_path / "space", ())
    runner = ColdRunner(workspace, choose_device("cpu"))
    trials = [TrialPaths(workspace.new_trial()) for _ in range(2)]
    return [runner.environment(job, paths).get("TORCHINDUCTOR_CACHE_DIR") for paths in trials]


def test_what_a_trial_on_a_device_compiles_is_there_for_the_next(tmp_path: Path) -> None:
    first, second = compiler_caches(tmp_path, replace(JOB, device="cuda"))
    assert first == second == str(tmp_path / "space" / "compiled")


def test_each_trial_on_a_cpu_compiles_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert compiler_caches(tmp_path, JOB) == [None, None]


def test_trackers_are_offline_and_a_server_of_mlflow_gives_way_to_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://tracking.example.org")
    workspace = Workspace(tmp_path / "space", ())
    paths = TrialPaths(workspace.new_trial())
    environment = ColdRunner(workspace, choose_device("cpu")).environment(JOB, paths)
    assert environment["MLFLOW_TRACKING_URI"].startswith(f"file://{paths.temporary}")
    assert (environment["WANDB_MODE"], environment["SWANLAB_MODE"]) == ("offline", "disabled")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert "MLFLOW_TRACKING_URI" not in ColdRunner(workspace, choose_device("cpu")).environment(JOB, paths)


def test_the_folder_in_place_of_a_server_of_mlflow_may_have_a_name_that_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://tracking.example.org")
    workspace = Workspace(tmp_path / os.fsdecode(b"caf\xe9"), ())
    paths = TrialPaths(workspace.new_trial())
    environment = ColdRunner(workspace, choose_device("cpu")).environment(JOB, paths)
    assert environment["MLFLOW_TRACKING_URI"].startswith(f"file://{tmp_path}/caf%E9/")
