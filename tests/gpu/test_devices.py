"""Several GPUs without torchrun: trials and real training use the same ones, or the search refuses and says why."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.runner.devices import choose_device, cuda_devices
from tests.gpu.bench import SCRIPTS, variables_of_a_child

pytestmark = pytest.mark.gpu
LIMIT_S = 240


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a user's own with the script."""
    shutil.copy(SCRIPTS / "spreads.py", tmp_path)
    return tmp_path


@pytest.fixture
def two_devices() -> int:
    """How many GPUs there are, at least two."""
    num_devices = len(cuda_devices())
    if num_devices < 2:
        pytest.skip(f"this machine shows {num_devices} CUDA device, and the test needs two")
    return num_devices


def autotune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autotune", *words],
        cwd=folder,
        env=variables_of_a_child(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def search(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    options = ("--trials", "2", "--time", "45s", "--set", "num_workers=0,2", "--fix", "compile=false")
    return autotune(folder, "search", "spreads.py", *options, *words)


def tuned(folder: Path) -> Any:
    return yaml.safe_load((folder / "autotune.yaml").read_text())


def trained(folder: Path, *words: str) -> Any:
    """What the script saw when it trained under its config."""
    done = autotune(folder, "run", "spreads.py", "--", *words, "--steps", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("SAID ")).removeprefix("SAID "))


def test_auto_is_a_device_with_as_much_free_memory_as_any_unused_one() -> None:
    chosen, shown = choose_device("auto"), cuda_devices()
    assert chosen.uuid in {each.uuid for each in shown}
    unused = [each.free_bytes for each in shown if not each.num_other_processes]
    assert not unused or chosen.free_bytes >= max(unused) - (2 << 30)


def test_a_script_on_one_device_is_measured_and_trains_on_one(folder: Path) -> None:
    done = search(folder, "--", "plain")
    assert done.returncode == 0, done.stdout + done.stderr
    assert tuned(folder)["provenance"]["host"]["num_devices"] == 1
    assert trained(folder, "plain")["num_devices"] == 1


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("data-parallel", "by torch.nn.DataParallel"),
        ("layers", "lays its model over 2 devices"),
        ("second", "trains on cuda:1 by its own choice"),
    ],
)
def test_a_process_on_several_devices_is_refused_by_name(folder: Path, two_devices: int, how: str, words: str) -> None:
    done = search(folder, "--", how)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert "--device cuda:" in done.stderr
    assert ("--nproc-per-node" in done.stderr) is (how != "second")
    assert not (folder / "autotune.yaml").exists()


def test_data_parallel_on_a_device_by_name_is_measured_and_trains_on_one(folder: Path, two_devices: int) -> None:
    done = search(folder, "--device", "cuda:1", "--", "data-parallel")
    assert done.returncode == 0, done.stdout + done.stderr
    assert trained(folder, "data-parallel")["num_devices"] == 1


def test_processes_that_the_script_spawns_are_measured_and_train_on_all(folder: Path, two_devices: int) -> None:
    done = search(folder, "--time", "150s", "--", "spawn")
    assert done.returncode == 0 and (folder / "autotune.yaml").exists(), done.stdout + done.stderr
    assert f"starts {two_devices} processes by itself" in done.stderr
    config = tuned(folder)
    assert config["provenance"]["world_size"] == two_devices
    assert config["provenance"]["host"]["num_devices"] == two_devices
    assert trained(folder, "spawn")["num_devices"] == two_devices
