"""What a resume does is what this user started or agreed to: the command, its folder, what it adds and imports."""

from __future__ import annotations

import json
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace

import pytest

from autotune.cli.main import main
from autotune.errors import UsageError
from autotune.store.repository import Repository
from autotune.study.trust_record import check_trusted
from tests.unit.study.test_searching import interrupted_after
from tests.unit.study.whole_search import folder

__all__ = ["folder"]


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """A state folder of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def edit(folder, change):
    """Changes the search of the only study, as somebody who writes the database may."""
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        (text,) = connection.execute("SELECT spec FROM autotune_studies").fetchone()
        spec = json.loads(text)
        change(spec)
        connection.execute("UPDATE autotune_studies SET spec = ?", [json.dumps(spec)])
    connection.close()


def test_a_study_that_this_user_started_goes_on_without_a_question(folder):
    interrupted_after(folder, 2)
    assert folder.resume().trials.total == 6


def test_a_tuner_beside_the_probe_trusts_the_study_before_and_after_the_probe_is_stored(folder, monkeypatch):
    """Tuners of other machines read the study at any time, also between the two writes of the tuner that probes."""
    seen = []
    save_probe = Repository.save_probe

    def watched(repository, name, **values):
        for look in (lambda: None, lambda: save_probe(repository, name, **values)):
            look()
            record = repository.study(name)
            check_trusted(record)
            seen.append(record.facts is not None)

    monkeypatch.setattr(Repository, "save_probe", watched)
    folder.runner.facts = replace(folder.runner.facts, imports=("json", "torch"))
    assert folder.search().trials.total == 6
    assert seen == [False, True]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda spec: spec.update(command=["python", "train.py", "--out", "/home/ada"]), "command"),
        (lambda spec: spec.update(out="/home/ada/.bashrc.yaml"), "config"),
        (lambda spec: spec.update(maps=[["evil", "--exec={}"]]), "arguments that trials add"),
        (lambda spec: spec.update(fixed=[["storage", "/etc"]]), "what was asked"),
        (lambda spec: spec.update(writable=["/home/ada"]), "what trials write for real"),
    ],
)
def test_what_the_database_says_otherwise_is_named_and_not_run(folder, change, named):
    interrupted_after(folder, 2)
    ran = len(folder.runner.ran)
    edit(folder, change)
    with pytest.raises(UsageError, match=f"has changed since you started it or agreed to it: .*{named}") as caught:
        folder.resume()
    assert caught.value.exit_code == 2
    assert caught.value.hint.endswith(f"autotune trust train --storage sqlite:///{folder.database}")
    assert len(folder.runner.ran) == ran


def test_a_study_of_somebody_else_is_shown_whole_and_goes_on_once_it_is_agreed_to(
    folder, monkeypatch, tmp_path, capsys
):
    interrupted_after(folder, 2)
    ran = len(folder.runner.ran)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    with pytest.raises(UsageError, match="was not started by you on this machine") as caught:
        folder.resume()
    for words in ("command   python train.py", f"folder    {folder.path}", "variables WANDB_MODE", "program   /"):
        assert words in caught.value.message
    assert len(folder.runner.ran) == ran
    monkeypatch.chdir(folder.path)
    assert main(["trust", "train", "--storage", str(folder.database)]) == 0
    assert "command   python train.py" in capsys.readouterr().out
    assert folder.resume().trials.total == 6


def test_an_agreement_holds_for_one_database_alone(folder, tmp_path, monkeypatch):
    interrupted_after(folder, 2)
    other = tmp_path / "cloned.db"
    other.write_bytes(folder.database.read_bytes())
    folder.database = other
    with pytest.raises(UsageError, match="was not started by you"):
        folder.resume()


def test_where_no_state_can_be_kept_trust_says_so_and_nothing_runs(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.chdir(folder.path)
    interrupted_after(folder, 2)
    with pytest.raises(UsageError, match="was not started by you"):
        folder.resume()
    assert main(["trust", "train", "--storage", str(folder.database)]) == 6
    assert "Set XDG_STATE_HOME" in capsys.readouterr().err


# Secret arguments


def test_a_secret_argument_is_in_no_database_and_a_resume_has_it(folder, state):
    command = ("python", "train.py", "--api-key", "s3cr3t-of-ada", "--token=0ther-s3cr3t")
    seen = []
    start = folder.runner.start
    folder.runner.start = lambda job: seen.append(job.command) or start(job)
    interrupted_after(folder, 2, command=command)
    folder.resume()
    assert {words[: len(command)] for words in seen} == {command}
    assert b"s3cr3t" not in folder.database.read_bytes()
    kept = [path for path in state.rglob("*.json") if b"s3cr3t" in path.read_bytes()]
    assert kept and all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept)


def test_a_secret_argument_that_is_not_known_here_is_asked_for_by_name(folder, tmp_path, monkeypatch):
    interrupted_after(folder, 2, command=("python", "train.py", "--api-key", "s3cr3t-of-ada"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    with pytest.raises(UsageError, match="has secret arguments, kept only for the user"):
        folder.resume()
