"""Folders of a study and of its trials."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from autotune.protocol.paths import TrialPaths
from autotune.protocol.protection import Protection
from autotune.sandbox import workspace as workspace_module
from autotune.sandbox.sandbox_error import SandboxError
from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.workspace import Workspace
from autotune.sandbox.workspace_places import _folder_in, _new_folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "space").mkdir()
    covered = (tmp_path / "home", tmp_path / "project")
    return Workspace(tmp_path / "space", covered)


def test_the_probe_writes_what_trials_read(workspace: Workspace) -> None:
    probe = workspace.mounts(workspace.new_trial(), is_probe=True)
    trial = workspace.mounts(workspace.new_trial(), is_probe=False)
    assert probe is not None and trial is not None
    assert probe.between == ()
    assert trial.between == (probe.upper,)
    assert trial.upper != probe.upper


def test_a_server_that_starts_before_the_end_of_the_probe_reads_no_layer_that_is_being_written(
    workspace: Workspace,
) -> None:
    before, after = (
        workspace.mounts(workspace.new_trial(), is_probe=False, is_server=True, is_before_probe=is_before)
        for is_before in (True, False)
    )
    assert before is not None and after is not None
    assert before.between == () and after.between != ()


def test_two_trials_share_nothing_that_they_write_to_but_what_compilers_made(workspace: Workspace) -> None:
    plans = [workspace.mounts(workspace.new_trial(), is_probe=False) for _ in range(2)]
    written = [{plan.upper, plan.root, *plan.plain} for plan in plans if plan is not None]
    assert written[0] & written[1] == {str(workspace.compiled)}


def test_a_trial_reads_what_the_beginning_wrote_that_it_goes_on_from(workspace: Workspace) -> None:
    prelude, trial = workspace.new_trial(), workspace.new_trial()
    plan = workspace.mounts(trial, is_probe=False, over=prelude)
    study = workspace.mounts(workspace.new_trial(), is_probe=True)
    first = workspace.mounts(prelude, is_probe=False)
    assert plan is not None and study is not None and first is not None
    assert plan.between == (first.upper, study.upper)
    assert plan.covered == (str(TrialPaths(prelude).temporary),)
    assert str(prelude) not in plan.plain


def test_the_probes_layer_counts_only_once_it_is_through(workspace: Workspace) -> None:
    workspace.mounts(workspace.new_trial(), is_probe=True)
    assert not workspace.has_probe_layer()
    workspace.probe_is_through()
    assert workspace.has_probe_layer()
    workspace.forget_probe()
    assert not workspace.has_probe_layer()


def test_a_layer_that_is_half_removed_does_not_count(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.mounts(workspace.new_trial(), is_probe=True)
    workspace.probe_is_through()

    def cut_off(path: Path) -> None:
        remove_tree(path)
        if path.name == "study":
            raise KeyboardInterrupt

    monkeypatch.setattr(workspace_module, "remove_tree", cut_off)
    with pytest.raises(KeyboardInterrupt):
        workspace.forget_probe()
    assert not workspace.has_probe_layer()
    assert not (workspace.folder / "complete").exists()


def test_a_disk_that_is_full_at_the_end_of_the_probe_is_the_hosts_fault(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(SandboxError, match="No space left"):
        workspace.probe_is_through()


def test_removing_a_trial_bears_what_scripts_leave(workspace: Workspace) -> None:
    trial = workspace.new_trial()
    (trial / "layer" / "a" / "b").mkdir(parents=True)
    (trial / "layer" / "a" / "b" / "file").touch()
    (trial / "layer" / "a" / "b").chmod(0)
    (trial / "layer" / "a").chmod(0)
    workspace.remove_trial(trial)
    assert not trial.exists()
    workspace.remove_trial(trial)


def test_a_trial_that_was_replaced_by_a_link_is_removed_and_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "sub").mkdir(parents=True)
    (precious / "sub").chmod(0o755)
    trial = workspace.new_trial()
    for folder in trial.iterdir():
        folder.rmdir()
    trial.rmdir()
    trial.symlink_to(precious)
    workspace.remove_trial(trial)
    assert not trial.is_symlink()
    assert (precious / "sub").stat().st_mode & 0o777 == 0o755


def test_folders_of_ours_are_for_us_alone(tmp_path: Path) -> None:
    folder = _folder_in(tmp_path / "autotune-1", "")
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_study_finds_its_folder_again_by_its_name(tmp_path: Path) -> None:
    base = tmp_path / "autotune-1"
    assert _folder_in(base, "study") == _folder_in(base, "study")
    assert _folder_in(base, "study") != _folder_in(base, "other")
    assert _folder_in(base, "") != _folder_in(base, "")


def test_a_folder_that_somebody_else_laid_out_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path)
    with pytest.raises(OSError, match="not ours"):
        _folder_in(tmp_path / "linked", "")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(OSError, match="not ours"):
        _folder_in(tmp_path / "open", "")


def test_the_temporary_space_lies_outside_of_what_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    assert _new_folder((tmp_path / "project",), "").is_relative_to(tmp_path / "tmp")
    with pytest.raises(SandboxError, match="TMPDIR"):
        _new_folder((tmp_path, Path("/var"), Path("/dev")), "")


def test_without_any_temporary_folder_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def there_is_none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", there_is_none)
    with pytest.raises(SandboxError, match="no temporary folder"):
        _new_folder((Path("/var"), Path("/dev")), "")


def test_sockets_in_a_trials_temporary_folder_have_room_for_their_names(workspace: Workspace) -> None:
    inside = TrialPaths(workspace.new_trial()).temporary.relative_to(workspace.folder)
    longest = f"/tmp/autotune-{os.getuid()}/{'x' * 8}/{inside}/pymp-xxxxxxxx/listener-xxxxxxxx"
    assert len(longest) < 104


def test_a_probe_under_another_protection_is_none_for_trials(workspace: Workspace) -> None:
    workspace.probe_is_through()
    for protection, is_there in ((Protection.LAYERS, True), (Protection.LANDLOCK, False), (Protection.NONE, False)):
        assert Workspace(workspace.folder, (), protection=protection).has_probe_layer() is is_there


def test_landlock_alone_confines_a_trial_and_names_its_own_places(workspace: Workspace, tmp_path: Path) -> None:
    trial = workspace.new_trial()
    given = tmp_path / "given"
    confined = Workspace(workspace.folder, (), protection=Protection.LANDLOCK, writable=(given,))
    places = confined.confinement(trial)
    assert places is not None and places[0] == str(trial) and places[-1] == str(given)
    assert all(Path(place).is_dir() for place in places[:-1])
    assert workspace.confinement(trial) is None
