"""The table of scripts: every row is complete for the runner and the reader."""

from __future__ import annotations

import re

import pytest

from tests.street.__main__ import choice
from tests.street.rows import SCRIPTS
from tests.street.script import DEVICES, Script

PLACEHOLDERS = {"data", "out", "cores", "gpu", "repository", "stand_ins"}
KINDS = (
    "timm", "torchvision references", "pytorch/examples", "HF Trainer", "HF without Trainer", "accelerate examples",
    "Lightning", "LightningCLI", "nanoGPT", "minGPT", "diffusion", "GAN", "YOLO family", "speech", "GNN", "recommender",
    "time series", "reinforcement learning", "DeepSpeed", "FSDP", "hand-written AMP and GradScaler",
    "CUDA-stream prefetcher", "DataParallel", "Keras", "several loaders side by side",
)  # fmt: skip
rows = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)


def texts(script: Script) -> list[str]:
    return [
        *script.arguments.values(),
        *script.expert.values(),
        *script.launcher.values(),
        *script.environment.values(),
    ]


def test_names_are_unique() -> None:
    names = [script.name for script in SCRIPTS]
    assert len(set(names)) == len(names)


def test_there_are_forty_scripts_of_which_twenty_run_on_a_gpu_and_four_on_two() -> None:
    on = {device: sum(device in script.devices for script in SCRIPTS) for device in DEVICES}
    assert len(SCRIPTS) >= 40 and on["gpu"] >= 20 and on["2gpu"] >= 4


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_has_a_row(kind: str) -> None:
    assert any(script.kind == kind for script in SCRIPTS)


@rows
def test_a_row_has_data_or_says_why_it_needs_none(script: Script) -> None:
    for device in script.devices:
        assert (script.data_on(device) is None) == bool(script.no_data)


@rows
def test_a_row_has_an_experts_line_or_says_why_there_is_none(script: Script) -> None:
    for device in script.devices:
        assert script.expert_on(device) is not None or script.no_expert


@rows
def test_a_row_counts_progress_or_says_why_it_cannot(script: Script) -> None:
    for device in script.devices:
        progress = script.progress_on(device)
        assert (progress is None) == bool(script.no_progress)
        if progress is not None:
            groups = set(re.compile(progress.pattern).groupindex)
            assert groups <= {"at", "epoch", "of", "seconds"} and progress.per > 0


@rows
def test_a_row_names_its_commit_in_full_and_stays_within_the_repository(script: Script) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", script.source.repository)
    assert re.fullmatch(r"[0-9a-f]{40}", script.source.commit)
    for path in (script.script, script.folder, *script.links):
        assert not path.startswith("/") and ".." not in path.split("/")


@rows
def test_a_row_uses_known_placeholders_and_devices(script: Script) -> None:
    assert script.devices and set(script.devices) <= set(DEVICES)
    assert {*script.expert, *script.launcher} <= set(script.devices)
    for text in texts(script):
        assert set(re.findall(r"\{(\w+)\}", text)) <= PLACEHOLDERS


def test_an_experts_words_come_after_those_of_a_user() -> None:
    script = next(script for script in SCRIPTS if script.name == "imagenet_resnet50")
    assert script.expert_on("gpu") == "-a resnet50 -b 128 {data} -j {cores}"


def test_rows_are_chosen_by_name_and_by_name_with_a_device() -> None:
    chosen = choice(["mnist", "torchvision_classification:2gpu"], ["cpu", "2gpu"])
    assert [(script.name, device) for script, device in chosen] == [
        ("mnist", "cpu"), ("torchvision_classification", "2gpu"),
    ]  # fmt: skip


def test_an_unknown_name_is_said() -> None:
    with pytest.raises(SystemExit, match="'mnits'"):
        choice(["mnits"], list(DEVICES))
