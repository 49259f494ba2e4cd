"""Whatever the script writes, the user's files stay byte for byte, and the script sees what it wrote."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.model.outcome import Outcome
from autotune.protocol.entry_points import INJECT
from autotune.protocol.job import Mode
from autotune.sandbox.workspace import Workspace
from tests.integration.runner.ground import EITHER, Ground, digest, escaped_of


def test_every_way_to_write_leaves_the_users_files_alone(ground: Ground) -> None:
    result = ground.run("writes.py")
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert escaped_of(result) == ()
    ground.check("writes everywhere", result)


@pytest.mark.parametrize(
    "ground",
    [
        "redirected",
        pytest.param(
            "layers",
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only an overlay of root renames the user's folders"),
        ),
    ],
    indirect=True,
)
@pytest.mark.parametrize(
    ("first", "last"), [("0", "15"), pytest.param("15", "300", marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_calls_under_protection_do_what_they_do_elsewhere(ground: Ground, first: str, last: str) -> None:
    others = ground.root / "others"
    others.mkdir()
    prepare = [sys.executable, "twins.py", "prepare", first, last, str(others), ""]
    subprocess.run(prepare, cwd=ground.user, check=True, env={**os.environ, "AUTOTUNE_TRIAL": "/"})
    ground.cover()
    limits = {"start_limit_s": 300.0, "total_limit_s": 300.0}
    for turn, mode in (("probe", Mode.PROBE), ("trial", Mode.TRIAL)):
        handle = ground.runner.start(
            ground.job("twins.py", "compare", first, last, str(others), turn, mode=mode, **limits)
        )
        result = handle.result()
        assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
        assert escaped_of(result) == ()
    ground.check(f"random writes {first} to {last}", result)


def probe(ground: Ground, *arguments: str) -> str:
    """Runs a script as the probe; the reason why it failed."""
    result = ground.run(*arguments, mode=Mode.PROBE)
    return f"{result.reason} {result.log_tail}" if result.outcome is not Outcome.OK else ""


def test_what_the_probe_made_is_read_by_trials_which_do_not_see_each_other(ground: Ground) -> None:
    assert probe(ground, "layered.py", "nothing", "probe") == ""
    ground.workspace.probe_is_through()
    for text in ("first", "second"):
        result = ground.run("layered.py", "probe", text)
        assert result.outcome is Outcome.OK, result.log_tail
    ground.check("probe and trials write", result)


def test_a_forgotten_probe_leaves_nothing_for_trials(ground: Ground) -> None:
    assert probe(ground, "layered.py", "nothing", "probe") == ""
    ground.workspace.forget_probe()
    assert probe(ground, "layered.py", "nothing", "again") == ""


def test_a_home_inside_the_working_directory_is_kept(ground: Ground) -> None:
    ground.home = ground.home.rename(ground.user / "home")
    ground.cover()
    assert len(ground.workspace.covered) == 1
    result = ground.run("writes.py")
    assert result.outcome is Outcome.OK, result.log_tail
    ground.check("home inside the working directory", result)


def test_a_working_directory_inside_home_is_kept(ground: Ground) -> None:
    ground.user = ground.user.rename(ground.home / "project")
    ground.cover()
    assert len(ground.workspace.covered) == 1
    result = ground.run("writes.py")
    assert result.outcome is Outcome.OK, result.log_tail
    ground.check("working directory inside home", result)


def test_a_working_directory_that_is_a_link_is_kept(ground: Ground) -> None:
    real = ground.user.rename(ground.root / "disk")
    ground.user.symlink_to(real)
    ground.cover()
    ground.before = digest(real, ground.home)
    result = ground.run("writes.py")
    assert result.outcome is Outcome.OK, result.log_tail
    ground.user = real
    ground.check("linked working directory", result)


def test_a_home_that_is_not_there_is_not_made(ground: Ground) -> None:
    ground.home = ground.root / "homes" / "nobody"
    ground.home.parent.mkdir()
    ground.cover()
    result = ground.run("elsewhere.py", "~/.cache")
    assert result.outcome is Outcome.OK, result.log_tail
    assert not ground.home.exists()
    ground.check("missing home", result)


@pytest.mark.parametrize("argument", ["{}", "--out={}", "output_dir={}"])
def test_a_folder_that_an_argument_names_is_kept(ground: Ground, argument: str) -> None:
    elsewhere = ground.root / "elsewhere"
    elsewhere.mkdir()
    text = argument.format(elsewhere / "runs" / "7")
    ground.cover(text)
    result = ground.run("elsewhere.py", text)
    assert result.outcome is Outcome.OK, result.log_tail
    assert list(elsewhere.iterdir()) == []
    ground.check("output folder elsewhere", result)


def test_a_folder_that_a_link_leads_to_is_kept(ground: Ground) -> None:
    elsewhere = ground.root / "elsewhere"
    elsewhere.mkdir()
    (ground.user / "checkpoints").symlink_to(elsewhere)
    (ground.home / ".cache").symlink_to(elsewhere)
    ground.cover()
    result = ground.run("elsewhere.py", "checkpoints", "~/.cache/hub")
    assert result.outcome is Outcome.OK, result.log_tail
    assert list(elsewhere.iterdir()) == []
    ground.check("linked output folder", result)


def test_processes_of_multiprocessing_are_kept_from_the_users_files(ground: Ground) -> None:
    result = ground.run("spawns.py")
    assert result.outcome is Outcome.OK, result.log_tail
    ground.check("multiprocessing writes", result)


def test_a_module_that_the_script_wrote_can_be_imported(ground: Ground) -> None:
    result = ground.run("imports.py")
    assert result.outcome is Outcome.OK, result.log_tail
    ground.check("imports what it wrote", result)


@pytest.mark.parametrize("ground", ["redirected"], indirect=True)
def test_what_escapes_redirection_is_named(ground: Ground) -> None:
    with (ground.user / "own.db").open("w") as database:
        ground.cover()
        handle = ground.runner.start(ground.job("escapes.py"))
        database.write("the tuner's own file is not meant")
        database.flush()
        (ground.user / "own.db-wal").write_text("and what belongs to it")
        assert escaped_of(handle.result()) == ("escaped", "escaped.txt", "kept.txt", "removed.txt")


@pytest.mark.parametrize("ground", ["redirected"], indirect=True)
def test_what_torch_writes_by_itself_is_redirected(ground: Ground) -> None:
    result = ground.run("saves.py", cwd=str(ground.user))
    assert result.exit_code == 0 and "refused" in result.log_tail, result.log_tail
    assert escaped_of(result) == ()
    ground.check("torch saves", result)


def test_databases_are_kept_from_the_users_files(ground: Ground) -> None:
    with contextlib.closing(sqlite3.connect(ground.user / "kept.db")) as database, database:
        database.execute("create table t (x)")
        database.execute("insert into t values (0)")
    ground.cover()
    result = ground.run("natives.py")
    assert result.outcome is Outcome.OK, result.log_tail
    assert escaped_of(result) == ()
    ground.check("writes to databases", result)


@pytest.mark.parametrize("ground", ["redirected"], indirect=True)
def test_functions_of_a_library_that_comes_later_are_redirected(ground: Ground) -> None:
    package = ground.user / "safetensors"
    package.mkdir()
    (package / "__init__.py").write_text(
        "def safe_open(filename, framework): return filename\ndef serialize_file(data, filename): return filename\n"
    )
    (ground.user / "obeys.py").write_text(
        "import os, pretend\n"
        "from safetensors import safe_open, serialize_file\n"
        "open('new.bin', 'w').close()\n"
        "print(safe_open('new.bin', framework='pt'))\n"
        "print(serialize_file({}, 'other.bin'))\n"
        "print(safe_open(filename='kept.txt', framework='pt'))\n"
        "pretend.report()\n"
    )
    ground.cover()
    places = ground.run("obeys.py").log_tail.split()
    assert [Path(place).name for place in places] == ["new.bin", "other.bin", "kept.txt"]
    assert [place.startswith(str(ground.workspace.folder)) for place in places] == [True, True, False]


def test_a_process_that_cannot_be_redirected_does_not_run(tmp_path: Path) -> None:
    environment = {**os.environ, "AUTOTUNE_REDIRECT": "{broken", "PYTHONPATH": INJECT}
    program = f"open({str(tmp_path / 'written')!r}, 'w')"
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert ended.returncode == 70
    assert b"cannot be kept" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of other users")
def test_root_sees_the_files_of_other_users_as_without_layers(ground: Ground) -> None:
    private = ground.user / "private.txt"
    private.write_text("private")
    private.chmod(0o600)
    os.chown(private, 12345, 12345)
    (ground.user / "obeys.py").write_text(
        "import pretend; f = open('private.txt', 'r+'); assert f.read() == 'private'; f.write('x'); pretend.report()\n"
    )
    ground.cover()
    result = ground.run("obeys.py")
    assert result.outcome is Outcome.OK, result.log_tail
    ground.check("another user's file", result)


@EITHER
def test_a_workspace_whose_opening_was_killed_is_opened_again(ground: Ground, are_layers_permitted: bool) -> None:
    (ground.workspace.folder / "permitted" / "upper-0").mkdir(parents=True)
    (ground.workspace.folder / "permitted" / "work-0").mkdir(mode=0)
    opened = Workspace.open(ground.workspace.folder, cwd=ground.user, command=(sys.executable, "obeys.py"))
    assert opened.folder == ground.workspace.folder
    assert opened.has_layers == are_layers_permitted
    assert not (opened.folder / "permitted").exists()
    opened.leave()
