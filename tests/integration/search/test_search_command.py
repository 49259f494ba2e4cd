"""The main job by its command, on a small script, with real processes. Seconds each, so few and telling."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).with_name("plain_loop.py")
NARROW = ["--fix", "intra_op_threads=1", "--fix", "omp_wait_policy=default", "--fix", "precision=fp32"]

SHARES_ITS_MODEL = """
import torch
from torch import multiprocessing, nn
from torch.utils.data import DataLoader, TensorDataset

def train(model):
    data = TensorDataset(torch.randn(640, 8), torch.randint(0, 4, (640,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        for inputs, targets in DataLoader(data, batch_size=64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

if __name__ == "__main__":
    model = nn.Linear(8, 4).share_memory()
    processes = [multiprocessing.get_context("fork").Process(target=train, args=(model,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
"""

PLAYS = """
import gymnasium, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(1, 4)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def project(tmp_path):
    shutil.copy(SCRIPT, tmp_path / "train.py")
    (tmp_path / "home").mkdir()
    return tmp_path


def autotune(project, *arguments, **options):
    command = [sys.executable, "-m", "autotune", *arguments]
    environment = {**os.environ, "HOME": str(project / "home"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finished(process, timeout_s=280):
    with process:
        try:
            output, talk = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
    return process.returncode, output, talk


def files_of(project):
    return {
        str(path.relative_to(project)): path.read_bytes()
        for path in project.rglob("*")
        if path.is_file() and "studies" not in path.relative_to(project).parts
    }


def strays(project):
    """Processes that still work in the project's folder."""
    everyone = psutil.process_iter(["pid", "cwd", "cmdline"])
    return [process.info for process in everyone if process.info["cwd"] == str(project)]


def test_a_search_finds_the_workers_and_its_config_trains_with_them(project):
    before = files_of(project)
    search = autotune(
        project, "search", "train.py", "--trials", "2", "--time", "4m", "--json", *NARROW, "--set", "num_workers=0,2"
    )
    code, output, talk = finished(search)
    assert code == 0, talk
    result = json.loads(output)
    assert result["status"] == "improved", talk
    assert result["best"]["settings"]["num_workers"] == 2
    assert result["speedup"]["low"] > 1
    assert result["bottleneck"]["kind"] == "loader"
    counts = result["trials"]
    assert counts["total"] == counts["complete"] + counts["infeasible"] + counts["failed"]
    after = files_of(project)
    assert set(after) - set(before) == {"autotune.yaml"}
    assert {name: after[name] for name in before} == before
    assert not strays(project)
    run = autotune(project, "run", "train.py", "--", "--seconds", "2")
    code, output, talk = finished(run)
    assert code == 0, talk
    assert f"workers={result['best']['settings']['num_workers']}" in output
    assert "in force: " in talk


@pytest.fixture
def own_temporary_folder(monkeypatch):
    """A folder for the layers of this test's searches alone; other searches of this machine have others."""
    with tempfile.TemporaryDirectory(prefix="at-") as path:
        monkeypatch.setenv("TMPDIR", path)
        yield Path(path)


@pytest.mark.slow
def test_a_search_killed_five_times_ends_with_all_its_trials(project, own_temporary_folder):
    before = files_of(project)
    generator = random.Random(7)
    arguments = ["search", "train.py", "--trials", "10", "--time", "20m", "--study", "killed", "--json"]
    for _ in range(5):
        process = autotune(project, *arguments)
        _wait_for_study(project, process)
        time.sleep(generator.uniform(0.5, 9.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()
        time.sleep(2.0)
        assert not strays(project)
        arguments = ["resume", "killed", "--json"]
    code, output, talk = finished(autotune(project, *arguments), timeout_s=600)
    assert code == 0, talk
    assert json.loads(output)["trials"]["total"] == 10
    after = files_of(project)
    assert {name for name in after if name not in before} <= {"autotune.yaml"}
    assert not strays(project)
    assert not list(own_temporary_folder.glob("autotune-*/*"))


def _wait_for_study(project, process):
    """Until the database holds the study; a kill before that leaves nothing to resume."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        listing = autotune(project, "studies", "list", "--json")
        code, output, _ = finished(listing)
        if code == 0 and "killed" in output:
            return
        assert process.poll() is None, process.stderr.read()
    raise AssertionError("no study appeared")


def test_a_second_tuner_on_the_same_study_is_refused(project):
    first = autotune(project, "search", "train.py", "--time", "60s", "--study", "busy")
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            code, _, talk = finished(autotune(project, "resume", "busy"))
            if "busy" in talk and re.search(r"process \d+", talk):
                break
        assert code == 2, talk
        assert "Traceback" not in talk
    finally:
        first.send_signal(signal.SIGTERM)
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=60)
    assert first.returncode == 130


@pytest.mark.slow
def test_a_declared_choice_is_searched_with_the_rest_and_trains_as_the_scripts_argument(project):
    script = project / "train.py"
    slow = "time.sleep(0.002)"
    assert slow in script.read_text()
    script.write_text(
        script.read_text()
        .replace(slow, "time.sleep(0.0005 if STORAGE == 'lmdb' else 0.004)")
        .replace(
            "options = parser.parse_args()",
            "options = parser.parse_args()\n    global STORAGE; STORAGE = options.storage",
        )
    )
    search = autotune(
        *(project, "search", "train.py", "--trials", "4", "--time", "5m", "--json", *NARROW),
        *("--fix", "num_workers=0", "--fix", "batch_size=16"),
        *("--set", "storage=folder,lmdb", "--map", "storage=--storage={}"),
    )
    code, output, talk = finished(search)
    assert code == 0, talk
    assert json.loads(output)["best"]["settings"]["knobs"] == {"storage": "lmdb"}, talk
    code, output, talk = finished(autotune(project, "run", "train.py", "--", "--seconds", "1"))
    assert (code, "storage=lmdb" in output) == (0, True), talk


def test_a_name_that_is_no_setting_is_refused_before_anything_is_started(project):
    code, _, talk = finished(autotune(project, "search", "train.py", "--set", "num_worker=0,2"))
    assert (code, "probe" in talk) == (2, False)
    assert "did you mean num_workers?" in talk
    assert not (project / "studies").exists()


@pytest.mark.slow
def test_a_search_from_python_gives_the_document_of_the_command(project):
    program = (
        "import autotune, json, sys\n"
        "events = []\n"
        "result = autotune.search('train.py', trials=2, time=300, set={'num_workers': [0, 2]},\n"
        "    on_event=events.append, fix={'intra_op_threads': 1, 'omp_wait_policy': 'default', 'precision': 'fp32'})\n"
        "assert isinstance(result, autotune.SearchResult) and events\n"
        "assert autotune.resume('train') == result\n"
        "print(json.dumps(result.document()))\n"
    )
    environment = {**os.environ, "HOME": str(project / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    code, output, talk = finished(autotune(project, "resume", "train", "--json"))
    assert (code, json.loads(output)) == (0, json.loads(done.stdout)), talk


def test_a_script_that_learns_by_playing_is_refused_by_name(project):
    (project / "gymnasium.py").write_text("")
    (project / "train.py").write_text(PLAYS)
    code, output, talk = finished(autotune(project, "search", "train.py", "--time", "60s"))
    assert code == 2 and output == ""
    assert "learns by reinforcement from an environment (gymnasium)" in talk and "--samples-per-step" in talk
    assert "Traceback" not in talk


def test_a_model_that_several_processes_train_at_once_is_refused_by_name(project):
    (project / "train.py").write_text(SHARES_ITS_MODEL)
    code, output, talk = finished(autotune(project, "search", "train.py", "--time", "100s"))
    assert code == 2 and output == ""
    assert "several processes train it at once" in talk and "share_memory()" in talk
    assert "Traceback" not in talk


SLOW_TO_START = """
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 64000

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.zeros(16), index % 3


loader = DataLoader(Slow(), batch_size=16)
time.sleep(10)  # after the loader, so that each process has to wait by itself
model = torch.nn.Linear(16, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    time.sleep(0.03)  # as long as a batch takes: one worker doubles the rate, on a busy machine too
    optimizer.step()
"""


@pytest.mark.slow
def test_a_short_search_of_a_script_that_starts_slowly_compares_in_one_process_and_says_so(project):
    """Four new processes of 15 s do not fit 60 s beside the probe and two trials."""
    (project / "train.py").write_text(SLOW_TO_START)
    code, output, talk = finished(autotune(project, "search", "train.py", "--time", "60s", "--start", "live", "--json"))
    assert code == 0, talk
    result = json.loads(output)
    assert result["status"] == "improved", talk
    assert any("rounds of the finals ran in the process of the trials" in note for note in result["notes"]), talk
    code, output, talk = finished(autotune(project, "report", "train", "--format", "json", "--out", "-"))
    assert "live" in [final["start"] for final in json.loads(output)["finals"]], talk
    assert not strays(project)


@pytest.mark.slow
def test_a_search_measures_live_where_it_is_asked_to_and_tells_so(project):
    command = ["search", "train.py", "--trials", "4", "--time", "2m", "--start", "live", *NARROW]
    code, _, talk = finished(autotune(project, *command))
    assert code == 0, talk
    code, output, talk = finished(autotune(project, "report", "train", "--format", "json", "--out", "-"))
    assert code == 0, talk
    document = json.loads(output)
    starts = [trial["start"] for trial in document["trials"]]
    assert starts[0] != "live" and "live" in starts[1:], [trial["start_reason"] for trial in document["trials"]]
    assert all(final["start"] != "live" for final in document["finals"])
    code, _, talk = finished(autotune(project, "report", "train", "--out", "report.md"))
    assert code == 0 and "| live |" in (project / "report.md").read_text(), talk
    assert not strays(project)
