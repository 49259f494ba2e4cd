"""Placement of workers by Slurm and Ray, without either."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from autotune.cli.main import main
from autotune.errors import UsageError
from autotune.service.engines.ray_checklist import (
    AUTH,
    MEMORY_MONITOR,
    SUBREAPER,
    environment_of,
    missing_at_start,
    users_environment,
)
from autotune.service.engines.ray_node import RayNode
from autotune.service.engines.slurm_workers import sbatch_options, slurm_script

GOOD = {SUBREAPER: "true", MEMORY_MONITOR: "0", AUTH: "token"}
NEEDED = ("--exclusive", "--signal=B:TERM@60", "--no-requeue", "--nodes=1", "--ntasks=1")
NEEDED += ("--partition=gpu", "--time=8:00:00", "--gres=gpu:8")
ARGUMENTS = ["--server", "http://head:8642", "--token-file", "token", "--project", "photos=/shared/my photos"]


def script(words=("--server=http://head:8642",), *, number=3, partition="gpu", options=(), folder=Path("/logs")):
    return slurm_script(number, words, options=sbatch_options(partition, options), folder=folder)


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


def test_a_node_of_ray_starts_a_worker_by_options_that_the_worker_has(capfd):
    assert RayNode((), "node").run() == 2
    assert "A worker needs a project." in capfd.readouterr().err


def test_an_array_takes_whole_nodes_and_drains_before_its_limit():
    text = script(options=["--time=8:00:00", "--gres=gpu:8"])
    assert "#SBATCH --array=0-2\n" in text
    for line in NEEDED:
        assert f"#SBATCH {line}\n" in text
    assert "-m autotune worker --server=http://head:8642\n" in text


@pytest.mark.parametrize(
    "option", ["--array=1-9", "--signal=USR1", "-n2", "time", "--", "--comment=a b", "--x=\n#SBATCH --y"]
)
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


class Slurm:
    """A stand-in for a cluster: sbatch keeps the script, and `node` runs the script as the first task of the array."""

    def __init__(self, folder):
        self.folder, self.script = folder, folder / "job.sh"
        self.program("srun", "exit 1")
        self.sbatch(f"cp \"$1\" {self.script}; echo 'Submitted batch job 4711'")

    def sbatch(self, body):
        self.program("sbatch", body)

    def program(self, name, body):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def node(self):
        is_array = "--array" in self.script.read_text()
        ours = {"SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "0"} if is_array else {}
        ours |= {"SLURM_JOB_ID": "4712" if is_array else "4711"}
        return subprocess.Popen(["bash", self.script], env={**os.environ, **ours}, stdout=subprocess.DEVNULL)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="submitit comes with the extra `slurm`")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return Slurm(tmp_path)


def test_the_id_of_the_array_is_printed_and_its_options_are_those_of_the_template(slurm, capsys):
    options = ["--partition=gpu", "--sbatch=--time=8:00:00", "--sbatch=--gres=gpu:8"]
    assert main(["workers", "slurm", "--number=3", *ARGUMENTS, *options]) == 0
    assert capsys.readouterr().out == "4711\n"
    lines = {line.replace("'", "") for line in slurm.script.read_text().splitlines()}
    assert {f"#SBATCH {line}" for line in NEEDED} <= lines
    assert [line for line in lines if line.startswith("#SBATCH --array=0-2")]
    assert not [line for line in lines if "srun" in line or "wckey" in line]
    assert main(["workers", "slurm", "--number=1", *ARGUMENTS]) == 0
    assert not [line for line in slurm.script.read_text().splitlines() if "--array" in line or "--time" in line]


@pytest.mark.parametrize("way", ["submitit", "template"])
@pytest.mark.parametrize(("sent", "number"), [(signal.SIGTERM, 1), (signal.SIGTERM, 2), (signal.SIGINT, 1)])
def test_the_signal_of_slurm_drains_the_worker_and_the_job_waits_for_its_end(slurm, capsys, way, sent, number):
    token = slurm.folder / "token"
    token.write_text("t" * 43)
    token.chmod(0o600)
    asked: list[str] = []
    with listening(asked) as url:
        words = [f"--server={url}", "--token-file=token", f"--project=demo={slurm.folder}", f"--number={number}"]
        assert main(["workers", "slurm", *words, *(["--dry-run"] if way == "template" else [])]) == 0
        if way == "template":
            slurm.script.write_text(capsys.readouterr().out)
        job = slurm.node()
        try:
            await_request(asked, ":lease")
            job.send_signal(sent)
            assert job.wait(60) == 0
        finally:
            job.kill()
    assert asked[0] == "/v1/workers" and asked[-1].endswith(":drain")


def test_a_task_told_to_run_again_by_submitit_is_drained_and_not_requeued(slurm, tmp_path):
    marks = tmp_path / "marks"
    slurm.program("scontrol", f"echo requeued > {marks}")
    token = slurm.folder / "token"
    token.write_text("t" * 43)
    token.chmod(0o600)
    asked: list[str] = []
    with listening(asked) as url:
        words = [f"--server={url}", "--token-file=token", f"--project=demo={slurm.folder}"]
        assert main(["workers", "slurm", *words]) == 0
        job = slurm.node()
        try:
            await_request(asked, ":lease")
            job.send_signal(signal.SIGUSR2)
            assert job.wait(60) == 0
        finally:
            job.kill()
    assert asked[-1].endswith(":drain") and not marks.exists()


@contextmanager
def listening(asked):
    """A server without work; the paths of all requests go into the list."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(0.05)
            self.send_response(204 if self.path.endswith(":lease") else 200)
            self.end_headers()
            if not self.path.endswith(":lease"):
                self.wfile.write(b'{"schema": 1}')

        def log_message(self, *_):
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def await_request(asked, ending):
    deadline = time.monotonic() + 60
    while not any(path.endswith(ending) for path in asked):
        assert time.monotonic() < deadline, asked
        time.sleep(0.05)


def test_a_machine_without_slurm_and_a_refusal_are_told(slurm, capsys, monkeypatch):
    slurm.sbatch("echo 'sbatch: error: invalid partition' >&2; exit 1")
    assert main(["workers", "slurm", *ARGUMENTS]) == 6
    assert "Slurm refuses the job: sbatch: error: invalid partition" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(slurm.folder))
    assert main(["workers", "slurm", *ARGUMENTS]) == 6
    assert "There is no Slurm on this machine." in capsys.readouterr().err


def test_without_submitit_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main(["workers", "slurm", *ARGUMENTS]) == 2
    assert "pip install submitit" in capsys.readouterr().err


def test_without_ray_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["workers", "ray", *ARGUMENTS]) == 2
    assert "pip install ray" in capsys.readouterr().err
