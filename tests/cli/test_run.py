"""`autotune run`, up to the moment when the script takes the process over."""

import hashlib
import os
import sys

import pytest

import autotune.study
from autotune.emit.agreed_arguments import note_written
from autotune.emit.tuned_config import config_text

from ..unit.emit.example import tuned_config


class BecameError(Exception):
    """What the process would have become."""


@pytest.fixture
def started(monkeypatch):
    """What was started: program, arguments, environment, and how the config was to be applied."""
    calls = []

    def run_command(config, command, cwd, *, share, path, device, watch_log):
        calls.append(
            {"config": config, "cwd": cwd, "share": share, "path": path, "device": device, "watch_log": watch_log}
        )
        return (*command, "--workers=4"), {"PATH": os.environ["PATH"], "TUNED": "1"}

    def become(program, argv, environment):
        calls[-1].update(program=program, argv=argv, environment=environment)
        raise BecameError

    module = type(sys)("autotune.study.apply")
    module.run_command = run_command
    monkeypatch.setitem(sys.modules, "autotune.study.apply", module)
    monkeypatch.setattr(autotune.study, "apply", module, raising=False)
    monkeypatch.setattr(os, "execvpe", become)
    return calls


def write_config(folder, name="autotune.yaml", **changes):
    digest = hashlib.sha256((folder / "train.py").read_bytes()).hexdigest()
    values = {"script_path": str(folder / "train.py"), "script_digest": digest, **changes}
    config = tuned_config(**values)
    (folder / name).write_text(config_text(config, "yaml"))
    note_written(folder / name, config)


def run(cli, *words):
    with pytest.raises(BecameError):
        cli("run", *words)


def test_the_script_takes_the_process_over_with_its_arguments_and_the_tuned_ones(cli, started, folder, capsys):
    write_config(folder)
    run(cli, "train.py", "--", "--data", "my photos")
    (call,) = started
    assert call["argv"] == [sys.executable, "train.py", "--data", "my photos", "--workers=4"]
    assert call["program"] == sys.executable
    assert call["environment"]["TUNED"] == "1"
    assert (call["cwd"], call["share"], call["watch_log"]) == (folder, False, "")
    assert capsys.readouterr() == ("", "")


def test_another_config_and_sharing_are_handed_on(cli, started, folder):
    write_config(folder, "other.yaml", provenance_study="other")
    run(cli, "train.py", "--config", "other.yaml", "--share")
    assert started[0]["config"].provenance.study == "other"
    assert started[0]["share"] is True
    assert started[0]["path"] == "other.yaml"


def test_a_watch_is_handed_on_with_the_place_of_its_log(cli, started, folder):
    write_config(folder)
    run(cli, "train.py", "--watch")
    assert started[0]["watch_log"] == "autotune-watch.jsonl"


def test_a_device_is_handed_on_and_the_ones_in_use_are_told(cli, started, folder, monkeypatch, capsys):
    write_config(folder)
    run(cli, "train.py", "--device", "cuda:1")
    run(cli, "train.py")
    assert [call["device"] for call in started] == ["cuda:1", "auto"]
    assert "GPUs" not in capsys.readouterr().err
    original = sys.modules["autotune.study.apply"].run_command

    def on_one(*words, **options):
        argv, environment = original(*words, **options)
        return argv, {**environment, "CUDA_VISIBLE_DEVICES": "GPU-1"}

    monkeypatch.setattr(sys.modules["autotune.study.apply"], "run_command", on_one)
    run(cli, "train.py")
    assert "trains on 1 of the GPUs here, as it was measured" in capsys.readouterr().err


def test_a_device_of_the_environment_or_the_study_file_holds_as_in_the_search(cli, started, folder, monkeypatch):
    write_config(folder)
    (folder / "study.toml").write_text('device = "cuda:3"\n')
    run(cli, "train.py")
    monkeypatch.setenv("AUTOTUNE_DEVICE", "cuda:2")
    run(cli, "train.py")
    run(cli, "train.py", "--device", "cuda:1")
    assert [call["device"] for call in started] == ["cuda:3", "cuda:2", "cuda:1"]
    monkeypatch.setenv("AUTOTUNE_DEVICE", "gpu")
    code, _, err = cli("run", "train.py")
    assert code == 2 and "AUTOTUNE_DEVICE" in err and len(started) == 3


def test_what_a_study_file_says_wrongly_of_a_search_stops_no_training(cli, started, folder):
    write_config(folder)
    (folder / "study.toml").write_text('device = "cuda:3"\ntrials = "many"\nunknown = 1\n')
    run(cli, "train.py")
    assert started[0]["device"] == "cuda:3"


def test_a_module_and_a_whole_command_run_too(cli, started, folder):
    (folder / "pkg.py").write_text("")
    write_config(folder, script_path="pkg", script_digest="")
    run(cli, "-m", "pkg", "--", "x")
    assert started[0]["argv"] == [sys.executable, "-m", "pkg", "x", "--workers=4"]
    write_config(folder)
    run(cli, "--", sys.executable, "-u", "train.py")
    assert started[1]["argv"] == [sys.executable, "-u", "train.py", "--workers=4"]


def test_a_tuned_number_of_processes_is_kept(cli, started, folder):
    write_config(folder, provenance_world_size=2)
    run(cli, "train.py", "--nproc-per-node", "2")
    assert "--nproc_per_node=2" in started[0]["argv"]
    code, _, err = cli("run", "train.py")
    assert code == 2
    assert "was tuned for 2 process(es) and this is 1" in err and "--nproc-per-node 2" in err


def test_a_script_that_starts_its_own_processes_is_started_as_it_was_tuned(cli, started, folder):
    write_config(folder, provenance_world_size=2, script_num_processes_per_node=1)
    run(cli, "train.py")
    code, _, err = cli("run", "train.py", "--nproc-per-node", "2")
    assert code == 2 and "was tuned for 1 process(es) and this is 2" in err


def test_a_script_that_changed_and_another_script_are_told(cli, started, folder, capsys):
    write_config(folder)
    (folder / "train.py").write_text("print('other')\n")
    (folder / "other.py").write_text("")
    run(cli, "train.py")
    assert "warning: " in (err := capsys.readouterr().err) and "is not as it was when it was tuned" in err
    run(cli, "other.py")
    assert "was tuned for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.py"], "autotune.yaml does not exist"),
        (["missing.py"], "There is no script missing.py"),
        ([], "There is no script to run"),
        (["train.py", "-m", "pkg"], "exclude each other"),
        (["train.py", "--nproc-per-node", "none"], "--nproc-per-node 'none' is not a whole number"),
        (["--nproc-per-node", "2", "--", sys.executable, "train.py"], "goes with a script"),
    ],
)
def test_what_cannot_run_is_refused(cli, started, words, message):
    code, out, err = cli("run", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert started == []


def test_a_program_that_cannot_be_started_is_told(cli, started, folder, monkeypatch):
    write_config(folder)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "execvpe", refuse)
    code, _, err = cli("run", "train.py")
    assert code == 6
    assert "cannot be started: Permission denied" in err
