"""Which folders of the user's trials must not write to."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.sandbox.covered_folders import covered_folders, watched_folders
from autotune.sandbox.sandbox_error import SandboxError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("project", "home", "data"):
        (tmp_path / name).mkdir()
    return tmp_path


def covered(root: Path, *arguments: str, **environment: str) -> set[str]:
    """Names of the covered folders, relative to the root."""
    found = covered_folders(root / "project", ("python", *arguments), {"HOME": str(root / "home"), **environment})
    return {str(path.relative_to(root)) for path in found}


def test_working_directory_and_home_are_covered(root: Path) -> None:
    assert covered(root) == {"project", "home"}


def test_folders_inside_covered_ones_are_not_named_twice(root: Path) -> None:
    (root / "project" / "home").mkdir()
    assert covered(root, "sub", HOME=str(root / "project" / "home")) == {"project"}
    found = covered_folders(root / "project", ("python",), {"HOME": str(root)})
    assert found == (root,)


def test_outer_folders_come_first(root: Path) -> None:
    found = covered_folders(root / "project", ("python", str(root / "data")), {"HOME": str(root / "home")})
    assert list(found) == sorted(found)


def test_links_are_followed_to_the_real_folder(root: Path) -> None:
    (root / "link").symlink_to(root / "project")
    assert covered_folders(root / "link", ("python",), {"HOME": str(root / "home")}) == (
        root / "home",
        root / "project",
    )


@pytest.mark.parametrize("argument", ["{}/data", "--data={}/data", "data={}/data", "../data", "--data=../data"])
def test_a_folder_that_is_an_argument_is_covered(root: Path, argument: str) -> None:
    assert covered(root, "train.py", argument.format(root)) == {"project", "home", "data"}


def test_the_folder_of_a_file_that_is_an_argument_is_covered(root: Path) -> None:
    (root / "data" / "config.yaml").touch()
    assert covered(root, str(root / "data" / "config.yaml")) == {"project", "home", "data"}


def test_the_place_where_an_argument_would_be_made_is_covered(root: Path) -> None:
    assert covered(root, f"--out={root}/data/runs/7") == {"project", "home", "data"}


@pytest.mark.parametrize(
    "argument", ["--epochs", "3", "", "=", "--lr=0.1", "s3://bucket/x", "\0", "x" * 5000, "sub/new"]
)
def test_other_arguments_add_nothing(root: Path, argument: str) -> None:
    assert covered(root, argument) == {"project", "home"}


def test_the_program_itself_adds_nothing(root: Path) -> None:
    found = covered_folders(root / "project", (str(root / "data" / "python"),), {"HOME": str(root / "home")})
    assert root / "data" not in found


def test_caches_that_the_environment_moves_are_covered(root: Path) -> None:
    assert covered(root, HF_HOME=str(root / "data" / "huggingface")) == {"project", "home", "data"}


def test_what_links_in_the_working_directory_lead_to_is_covered(root: Path) -> None:
    (root / "project" / "checkpoints").symlink_to(root / "data")
    (root / "project" / "broken").symlink_to(root / "nowhere")
    (root / "project" / "circle").symlink_to("circle")
    assert "data" in covered(root)


def test_what_links_in_the_home_folder_lead_to_is_covered(root: Path) -> None:
    (root / "home" / ".cache").symlink_to("../data")
    assert covered(root) == {"project", "home", "data"}


def test_system_folders_are_not_covered_for_an_argument_but_are_for_the_working_directory() -> None:
    assert covered_folders(Path("/usr/share"), ("python", "/etc/hosts"), {"HOME": "/"}) == (
        Path("/usr/share").resolve(),
    )


@pytest.mark.parametrize("home", ["", "relative", "/", "/nowhere/at/all"])
def test_a_home_that_is_none_is_left_out(root: Path, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    assert covered_folders(root / "project", ("python",), {"HOME": home}) == (root / "project",)


def test_the_folder_in_which_a_missing_home_would_be_made_is_covered(root: Path) -> None:
    assert covered(root, HOME=str(root / "data" / "somebody")) == {"project", "data"}


@pytest.mark.parametrize("cwd", ["/", "/proc/self", "/dev", "/sys"])
def test_a_working_directory_that_cannot_be_protected_is_refused(cwd: str) -> None:
    with pytest.raises(SandboxError, match="cannot be protected"):
        covered_folders(Path(cwd), ("python",), {"HOME": "/"})


def test_folders_of_variables_of_texts_and_above_the_project_are_watched_without_layers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    base = tmp_path_factory.mktemp("base")
    for name in ("above/user/project", "above/user/home", "in_variable", "in_text", "of_library"):
        (base / name).mkdir(parents=True)
    (base / "in_variable" / "file").touch()
    project = base / "above" / "user" / "project"
    (project / "config.yaml").write_text(f"out: {base}/in_text/checkpoints\n")
    environment = {
        "HOME": str(base / "above" / "user" / "home"),
        "INPUT": str(base / "in_variable" / "file"),
        "VIRTUAL_ENV": str(base / "of_library"),
        "SCRATCH": "/tmp",
        "WORDS": "/no/such/place",
    }
    found = watched_folders(project, ("python", "train.py"), environment)
    assert found[0] == project
    assert {path.relative_to(base).as_posix() for path in found} == {
        "above/user/project",
        "above/user/home",
        "above/user",
        "above",
        "in_variable",
        "in_text",
    }


def test_a_link_to_the_root_of_the_file_system_covers_nothing_more(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("project", "home"):
        (root / folder / "all").symlink_to("/")
    monkeypatch.setattr("os.access", lambda path, mode: True)
    assert covered(root) == {"project", "home"}
