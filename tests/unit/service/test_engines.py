"""Placement of workers by Slurm and Ray, without either."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.cli.main import main
from autotune.errors import HostError, UsageError
from autotune.service.engines.ray_checklist import (
    AUTH,
    MEMORY_MONITOR,
    SUBREAPER,
    environment_of,
    missing_at_start,
    users_environment,
)
from autotune.service.engines.slurm_workers import slurm_script, submit_to_slurm

GOOD = {SUBREAPER: "true", MEMORY_MONITOR: "0", AUTH: "token"}
ARGUMENTS = ["--server", "http://head:8642", "--token-file", "token", "--project", "photos=/shared/my photos"]


def script(words=("--server=http://head:8642",), *, number=3, partition="gpu", options=(), folder=Path("/logs")):
    return slurm_script(number, partition, words, options=options, folder=folder)


def test_a_node_started_as_told_lacks_nothing():
    assert missing_at_start(GOOD) == ()


@pytest.mark.parametrize(("name", "is_fatal"), [(SUBREAPER, True), (MEMORY_MONITOR, True), (AUTH, False)])
def test_each_variable_of_a_node_is_missed_by_name(name, is_fatal):
    (gap,) = missing_at_start({**GOOD, name: "250"})
    assert name in gap.setting and gap.is_fatal is is_fatal and gap.reason.endswith(".")


def test_a_trial_gets_the_users_variables_and_none_of_rays():
    environ = {"HOME": "/home/ada", "OMP_NUM_THREADS": "4", "RAY_JOB_ID": "1", "RAY_AUTH_TOKEN": "secret"}
    assert users_environment(environ) == {"HOME": "/home/ada", "OMP_NUM_THREADS": "4"}


def test_the_environment_of_a_process_is_read_as_it_was_at_its_start():
    with subprocess.Popen(["sleep", "60"], env={"MARK": "a=b\nc"}) as child:
        try:
            deadline = time.monotonic() + 20
            while environment_of(child.pid) != {"MARK": "a=b\nc"}:
                assert time.monotonic() < deadline
        finally:
            child.kill()


def test_an_array_takes_whole_nodes_and_drains_before_its_limit():
    text = script(options=["--time=8:00:00", "--gres=gpu:8"])
    for line in ("--array=1-3", "--exclusive", "--signal=B:TERM@60", "--no-requeue", "--partition=gpu", "--gres=gpu:8"):
        assert f"#SBATCH {line}\n" in text
    assert "-m autotune worker --server=http://head:8642 &" in text


@pytest.mark.parametrize("option", ["--array=1-9", "--signal=USR1", "-n", "time", "--comment=a b", "--x=\n#SBATCH --y"])
def test_an_option_that_would_change_the_measurement_is_refused(option):
    with pytest.raises(UsageError) as caught:
        script(options=[option])
    assert repr(option) in str(caught.value)


def test_the_command_prints_the_script_without_the_token(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("token").write_text("t" * 43)
    assert main(["workers", "slurm", "--number", "2", "--dry-run", *ARGUMENTS]) == 0
    text = capsys.readouterr().out
    assert f"--token-file={tmp_path / 'token'}" in text and "t" * 43 not in text
    assert "'--project=photos=/shared/my photos'" in text


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A stand-in for sbatch that keeps the script."""
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat > {tmp_path / 'job.sh'}\necho '4711;cluster'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def test_the_id_of_the_array_is_printed(slurm, capsys, monkeypatch):
    monkeypatch.chdir(slurm)
    assert main(["workers", "slurm", *ARGUMENTS, "--sbatch", "--time=1:00:00"]) == 0
    assert capsys.readouterr().out == "4711\n"
    assert "#SBATCH --time=1:00:00" in (slurm / "job.sh").read_text() and (slurm / "worker-logs").is_dir()


def test_the_signal_of_slurm_reaches_the_worker_and_the_job_waits_for_its_end(tmp_path):
    marks = tmp_path / "marks"
    worker = (
        f"import signal, sys, time, pathlib; marks = pathlib.Path({str(marks)!r});"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), marks.write_text('drained'), sys.exit(5)));"
        "marks.write_text('works'); time.sleep(60)"
    )
    text = script().replace("-m autotune worker --server=http://head:8642", f'-c "{worker}"')
    job = subprocess.Popen(["bash", "-c", text])
    deadline = time.monotonic() + 30
    while not marks.exists() or marks.read_text() != "works":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    assert job.wait(30) == 5 and marks.read_text() == "drained"


def test_a_machine_without_slurm_and_a_refusal_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="no sbatch"):
        submit_to_slurm("", tmp_path)
    refuses = tmp_path / "sbatch"
    refuses.write_text(f"#!{sys.executable}\nimport sys; sys.exit('sbatch: error: invalid partition')\n")
    refuses.chmod(0o700)
    with pytest.raises(HostError, match="invalid partition"):
        submit_to_slurm("", tmp_path)


def test_without_ray_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["workers", "ray", *ARGUMENTS]) == 2
    assert "pip install ray" in capsys.readouterr().err
