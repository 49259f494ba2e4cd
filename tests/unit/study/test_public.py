"""A search asked for from Python is the one that the command line asks for."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

import autotune
from autotune.errors import ConfigError, SearchSpaceError, UsageError
from autotune.spec import SearchSpec
from autotune.study import searching
from autotune.study_file.asked import asked
from autotune.study_file.search_options import KEYS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("import torch\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def specs(monkeypatch: pytest.MonkeyPatch) -> list[SearchSpec]:
    """What the tuner is asked for, in place of a search."""
    found: list[SearchSpec] = []
    monkeypatch.setattr(searching, "search", lambda spec, **_: found.append(spec))
    return found


def test_every_option_reaches_the_tuner_as_from_the_command_line(folder: Path, specs: list[SearchSpec]) -> None:
    autotune.search(
        Path("train.py"),
        ["--epochs", "3"],
        nproc_per_node=2,
        study="photos",
        storage="studies/a.db",
        memory_cap="16GiB",
        trials=12,
        time=600,
        effective_batch="64..1024",
        set={"num_workers": "0..4", "prefetch_factor": [2, 4], "storage": ("jpeg", "npy")},
        fix={"precision": "fp32", "pin_memory": True},
        map={"storage": "--storage={}"},
        samples_per_step=32.5,
        take_over="last-week",
        out=Path("tuned.toml"),
        force=True,
        seed=7,
        device="cuda:1",
        share_gpu=True,
        protection="landlock",
        unprotected=True,
        network=True,
        allow_batchnorm_accumulation=True,
    )
    flags = {
        "script": "train.py",
        "nproc_per_node": "2",
        "study": "photos",
        "storage": "studies/a.db",
        "memory_cap": "16GiB",
        "trials": "12",
        "time": "10m",
        "effective_batch": "64..1024",
        "set": ["num_workers=0..4", "prefetch_factor=2,4", "storage=jpeg,npy"],
        "fix": ["precision=fp32", "pin_memory=true"],
        "map": ["storage=--storage={}"],
        "samples_per_step": "32.5",
        "take_over": "last-week",
        "out": "tuned.toml",
        "force": True,
        "seed": "7",
        "device": "cuda:1",
        "share_gpu": True,
        "protection": "landlock",
        "unprotected": True,
        "network": True,
        "allow_batchnorm_accumulation": True,
    }
    assert specs == [asked(flags, ["--epochs", "3"], folder).spec]


def test_no_option_of_the_command_line_is_missing() -> None:
    """`require_gain` sets an exit code, which a call has not."""
    assert set(KEYS) - set(inspect.signature(autotune.search).parameters) == {"require_gain"}


def test_a_whole_command_and_a_module_can_be_searched(folder: Path, specs: list[SearchSpec]) -> None:
    autotune.search(command=[sys.executable, "-u", "train.py", "x"])
    autotune.search(module="train", args=["x"])
    assert [spec.command[1:] for spec in specs] == [("-u", "train.py", "x"), ("-m", "train", "x")]
    with pytest.raises(TypeError, match="command goes without script"):
        autotune.search("train.py", command=["python", "train.py"])


def test_a_folder_can_be_named_in_place_of_the_working_directory(
    folder: Path, specs: list[SearchSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "study.toml").write_text("trials = 5\n")
    monkeypatch.chdir(folder.parent)
    autotune.search("train.py", cwd=folder)
    assert (specs[0].cwd, specs[0].max_trials) == (str(folder), 5)


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ({"memory_cap": "16 potatoes"}, UsageError, "16 potatoes"),
        ({"trials": 0}, UsageError, "'0' is not at least 1"),
        ({"fix": {"precision": "fp8"}}, UsageError, "'fp8'"),
        ({"script": "none.py"}, UsageError, "There is no script none.py"),
        ({"study_file": "none.toml"}, ConfigError, "none.toml"),
    ],
)
def test_what_cannot_be_is_an_error_with_the_value_in_it(
    folder: Path, specs: list[SearchSpec], wrong: dict[str, object], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        autotune.search(**{"script": "train.py", **wrong})
    assert specs == []
    assert issubclass(SearchSpaceError, UsageError)


def test_the_function_stays_when_the_room_of_its_name_is_imported() -> None:
    from autotune.search.study_search import Search

    assert inspect.isfunction(autotune.search) and inspect.isclass(Search)
