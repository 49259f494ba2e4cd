"""Workspaces in use are left alone; those of dead tuners are cleared away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from autotune.sandbox.locks import COMPLETE, KEPT_S, LOCK, claim, sweep
from autotune.sandbox.sandbox_error import SandboxError
from autotune.sandbox.workspace import Workspace
from autotune.sandbox.workspace_places import remove_workspace


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / f"autotune-{os.getuid()}"
    base.mkdir(mode=0o700)
    return base


def make(base: Path, name: str = "1234abcd", *, is_complete: bool = False) -> Path:
    folder = base / name
    (folder / "study").mkdir(parents=True)
    (folder / "trials" / "0a1b2c3d" / "tmp").mkdir(parents=True)
    if is_complete:
        (folder / COMPLETE).write_text("")
    return folder


def test_a_workspace_in_use_is_left_alone(base: Path) -> None:
    folder = make(base)
    held = claim(folder)
    assert held is not None
    sweep([base])
    assert (folder / "trials" / "0a1b2c3d").is_dir()
    held.release()
    held.release()
    sweep([base])
    assert not folder.exists()


def test_a_workspace_of_a_tuner_that_was_killed_in_its_probe_is_removed(base: Path) -> None:
    folder = make(base)
    (folder / "study").chmod(0)  # as overlay leaves its work folders
    sweep([base])
    assert list(base.iterdir()) == []


def test_a_completed_probe_is_kept_for_a_resume_and_what_its_trials_left_is_not(base: Path) -> None:
    folder = make(base, is_complete=True)
    sweep([base])
    assert (folder / COMPLETE).is_file()
    assert not (folder / "trials").exists()


def test_a_completed_probe_that_nobody_came_back_to_is_removed_in_the_end(base: Path) -> None:
    folder = make(base, is_complete=True)
    sweep([base])
    long_ago = time.time() - KEPT_S - 60
    os.utime(folder / LOCK, (long_ago, long_ago))
    sweep([base])
    assert not folder.exists()


def test_a_claim_counts_from_its_last_use(base: Path) -> None:
    folder = make(base, is_complete=True)
    (folder / LOCK).write_text("")
    os.utime(folder / LOCK, (0, 0))
    held = claim(folder)
    assert held is not None
    held.release()
    sweep([base])
    assert folder.is_dir()


def test_a_workspace_of_another_machine_in_a_shared_folder_is_left_until_it_is_old(base: Path) -> None:
    folder = make(base)
    (folder / LOCK).write_text("the boot of another machine")
    sweep([base])
    assert folder.is_dir()
    os.utime(folder / LOCK, (0, 0))
    sweep([base])
    assert not folder.exists()


def test_a_folder_that_was_removed_cannot_be_claimed(base: Path) -> None:
    assert claim(base / "gone") is None


def test_a_lock_that_is_a_link_is_not_followed(base: Path, tmp_path: Path) -> None:
    folder = make(base)
    (tmp_path / "mine").write_text("mine")
    (folder / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(OSError):
        claim(folder)
    sweep([base])
    assert (tmp_path / "mine").read_text() == "mine"


def test_what_is_not_this_users_alone_is_not_swept(base: Path) -> None:
    folder = make(base)
    base.chmod(0o777)
    sweep([base, base.parent / "missing"])
    assert folder.is_dir()


def test_opening_a_workspace_sweeps_and_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: Path) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("autotune.sandbox.layer_permission.is_permitted", lambda scratch, folders: False)
    left = make(base)
    project = tmp_path / "project"
    project.mkdir()
    workspace = Workspace.open(None, cwd=project, command=("python", "train.py"), study_id="one")
    assert not left.exists()
    sweep([base])
    assert workspace.folder.is_dir()
    workspace.leave()
    sweep([base])
    assert not workspace.folder.exists()


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: Path) -> Workspace:
    """The workspace of study "one", in the only base that there is."""
    monkeypatch.setattr("autotune.sandbox.workspace_places.bases", lambda: (base,))
    monkeypatch.setattr("autotune.sandbox.layer_permission.is_permitted", lambda scratch, folders: False)
    (tmp_path / "project").mkdir()
    return Workspace.open(None, cwd=tmp_path / "project", command=("python", "train.py"), study_id="one")


def test_the_workspace_of_a_study_is_removed_and_no_other(opened: Workspace, base: Path) -> None:
    other = make(base)
    remove_workspace("two")
    assert opened.folder.is_dir()
    remove_workspace("one")
    assert list(base.iterdir()) == [other]


def test_a_link_in_place_of_a_workspace_is_neither_removed_nor_opened(
    opened: Workspace, base: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    remove_workspace("one")
    opened.folder.symlink_to(mine)
    remove_workspace("one")
    assert mine.is_dir()
    with pytest.raises(SandboxError):
        Workspace.open(None, cwd=tmp_path / "project", command=("python", "train.py"), study_id="one")
    assert list(mine.iterdir()) == []


def test_a_workspace_is_found_again_after_tmpdir_has_changed(
    opened: Workspace, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / base.name
    other.parent.mkdir()
    monkeypatch.setattr("autotune.sandbox.workspace_places.bases", lambda: (other, base))
    opened.probe_is_through()
    opened.leave()
    again = Workspace.open(None, cwd=tmp_path / "project", command=("python", "train.py"), study_id="one")
    assert again.folder == opened.folder
    assert again.has_probe_layer()
