"""What the supervisor does when a trial cannot be started, and when the tuner is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.protocol.codec import decode, encode
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import SupervisorReport, SupervisorSpec
from autotune.sandbox import supervisor
from autotune.sandbox.supervisor import _remove_folders


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    for name in ("trials/first", "trials/second", "precious"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "trials" / "first"


@pytest.mark.parametrize("what", ["the terminal", "the log"])
def test_a_supervisor_that_can_open_no_terminal_or_log_reports_why(
    trial: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], what: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(supervisor, "ignore_signals", lambda: None)
    monkeypatch.setattr(supervisor, "prctl", lambda *_: None)
    monkeypatch.setattr(supervisor, "start", lambda *_: pytest.fail("nothing can be started"))
    monkeypatch.setattr(supervisor, "open_terminal" if what == "the terminal" else "_opened_logs", refuse)
    paths = TrialPaths(trial)
    paths.supervisor.write_text(encode(SupervisorSpec(command=("python",), cwd="/", log=str(paths.log))))
    assert supervisor.main(str(paths.supervisor)) is None
    said = decode(SupervisorReport, capfd.readouterr().out)
    assert said == SupervisorReport(error="[Errno 28] No space left on device")


def test_a_trial_and_the_latest_that_was_forked_from_it_are_removed(trial: Path) -> None:
    TrialPaths(trial).latest.write_text(str(trial.parent / "second"))
    _remove_folders(trial)
    assert list(trial.parent.iterdir()) == []


@pytest.mark.parametrize("trap", ["a link to a device without an end", "a pipe", "a sparse file of 1 TiB"])
def test_a_trap_in_place_of_the_latest_trial_holds_no_supervisor_up(trial: Path, trap: str) -> None:
    latest = TrialPaths(trial).latest
    if trap == "a pipe":
        os.mkfifo(latest)
    elif trap == "a sparse file of 1 TiB":
        latest.touch()
        os.truncate(latest, 1 << 40)
    else:
        latest.symlink_to("/dev/zero")
    _remove_folders(trial)
    assert [path.name for path in trial.parent.iterdir()] == ["second"]


@pytest.mark.parametrize("said", ["{root}/precious", "{root}/trials/../precious", "{root}/trials/..", "", "\\0"])
def test_a_script_cannot_have_another_folder_removed(trial: Path, said: str) -> None:
    root = trial.parents[1]
    TrialPaths(trial).latest.write_text(said.format(root=root))
    _remove_folders(trial)
    assert (root / "precious").is_dir() and (root / "trials" / "second").is_dir()
    assert not trial.exists()
