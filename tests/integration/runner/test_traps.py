"""Scripts that put links where the tuner or a supervisor reads, writes or removes files: nothing of the user's changes.

The tuner is not in the sandbox. A link of a script in a trial's folder must not lead the tuner to the user's files.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import StartKind, TrialResult
from autotune.protocol.job import Mode, TrialJob
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.live_runner import LiveRunner
from autotune.sandbox.tree_removal import remove_tree
from tests.integration.runner.ground import Ground, digest, protection_of
from tests.integration.runner.study import opened
from tests.unit.facts import script_facts

BEGIN = """
import os, shutil, sys, time
from contextlib import suppress
from pathlib import Path
user = Path("USER")
trial = Path(os.environ["AUTOTUNE_TRIAL"])
study = trial.parents[1] / "study"
def trap(path, target):
    with suppress(OSError):
        os.rename(path, f"{path}-{time.monotonic_ns()}")
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
"""
PRETENDS = "\nimport pretend\npretend.report()\n"
IN_THE_STUDY = {
    "links in place of the layer of redirected writes": "trap(study / 'redirected', user)",
    "links in place of the redirected files": "trap(study / 'redirected' / 'files', user)",
    "links in place of the list of removed files": "trap(study / 'redirected' / 'gone', user)",
    "a link in a layer of mounts that the script has made": """
os.makedirs(study / "layer" / "x", exist_ok=True)
(study / "layer" / "x" / "path").write_text("/nowhere")
trap(study / "layer" / "x" / "upper", user)
""",
    "links in place of the folder of the study": "trap(study, user)",
    "a link in place of the mark of a complete probe": "trap(study / 'complete', user / 'kept.txt')",
    "a link in place of the mark of a network": "trap(study / 'connected', user / 'made.txt')",
}
OWN_FILES = """
for name in ("output.log", "job.json", "latest", "progress.bin", "results", "windows", "profiles", "seam"):
    trap(trial / name, user / "kept.txt")
spec = (trial / "supervisor.json").read_text()
os.unlink(trial / "supervisor.json")
(trial / "supervisor.json").write_text(spec.replace(str(trial / "output.log"), str(user / "kept.txt")))
"""
BEGINNING = """
if "'mode': 'trial'" in repr(__import__("json").loads((trial / "job.json").read_text())):
    for name in ("latest", "output.log"):
        trap(trial / name, user / "kept.txt")
"""
IN_PLACE_OF_THE_FOLDER = "trap(trial / 'windows', user / 'sub')"
IN_PLACE_OF_THE_REQUEST = """
for name in ("job.json", "job.part"):
    trap(trial / "windows" / "1" / name, user / "kept.txt")
"""
TRAINS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(512, 8), torch.zeros(512, dtype=torch.long)), batch_size=16)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        time.sleep(0.0005)
"""


@pytest.fixture(scope="module", params=["layers", "landlock", pytest.param("redirected", marks=pytest.mark.slow)])
def ground(request: pytest.FixtureRequest, are_layers_permitted: bool) -> Iterator[Ground]:
    """A user's project and home under each protection."""
    home = os.environ.get("HOME", "/")
    protection = protection_of(request.param, are_layers_permitted=are_layers_permitted)
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    yield Ground(root, protection)
    os.environ["HOME"] = home
    remove_tree(root)


def write(ground: Ground, text: str, *, end: str = PRETENDS) -> None:
    """Makes the script of the trial."""
    (ground.user / "traps.py").write_text(f"{BEGIN}\n{text}\n{end}".replace("USER", str(ground.home)))
    ground.cover()


def changed(ground: Ground) -> list[str]:
    """Files of the user's in another state than before, and files that are new or gone."""
    after = digest(ground.user, ground.home)
    return sorted(path for path in {*ground.before, *after} if ground.before.get(path) != after.get(path))


def run(runner: ColdRunner | ForkRunner | LiveRunner, job: TrialJob) -> TrialResult:
    """Runs a job to its end."""
    handle = runner.start(job)
    while not handle.poll():
        time.sleep(0.01)
    return handle.result()


@pytest.mark.parametrize("trap", IN_THE_STUDY)
@pytest.mark.parametrize("mode", [Mode.PROBE, pytest.param(Mode.TRIAL, marks=pytest.mark.slow)])
def test_the_study_is_tidied_up_without_a_change_to_the_users_files(ground: Ground, trap: str, mode: Mode) -> None:
    write(ground, IN_THE_STUDY[trap])
    ground.run("traps.py", mode=mode)
    space = ground.workspace
    space.probe_is_through()
    assert changed(ground) == []
    assert space.has_probe_layer()
    space.connect()
    space.keep_only_caches()
    assert changed(ground) == []
    space.forget_probe()
    assert changed(ground) == []


def test_a_supervisor_writes_to_no_file_that_the_script_put_in_place_of_the_log(ground: Ground) -> None:
    write(ground, OWN_FILES, end=f"print('said')\n{PRETENDS}")
    for runner in (ground.runner, ForkRunner(ground.runner, script_facts(imports=("json",)))):
        run(runner, ground.job("traps.py"))
        runner.close()
        assert changed(ground) == []
    ground.check("links in place of the trial's own files", None)


CALLBACKS = """
def reopen():
    with open(user / "log.txt", "w") as log:
        log.write(f"opened anew by {os.getpid()}")
os.register_at_fork(before=reopen, after_in_child=reopen, after_in_parent=reopen)
sys.executable = "/bin/false"
"""
DAEMON = """
import subprocess
if "'mode': 'trial'" in repr(__import__("json").loads((trial / "job.json").read_text())):
    subprocess.run(["sh", "-c", "setsid sleep 600 < /dev/null > /dev/null 2>&1 &"], check=True)
"""


@pytest.mark.slow
def test_callbacks_of_forks_are_mute_while_a_prepared_trial_is_forked(ground: Ground) -> None:
    write(ground, CALLBACKS, end=TRAINS)
    study = opened(ground, "traps.py")
    with study.runner() as runner:
        results = [run(runner, study.job()) for _ in range(2)]
    assert [result.start for result in results] == [StartKind.PREPARED] * 2, f"{results[0].why} {results[0].log_tail}"
    assert [result.outcome for result in results] == [Outcome.OK] * 2, results[0].why
    assert changed(ground) == []


@pytest.mark.slow
def test_a_beginning_that_leaves_a_process_serves_no_trial(ground: Ground) -> None:
    write(ground, DAEMON, end=TRAINS)
    study = opened(ground, "traps.py")
    with study.runner() as runner:
        result = run(runner, study.job())
    assert result.start is StartKind.FORKED and "its beginning has left a process running" in result.start_reason
    assert changed(ground) == []
    assert ground.processes_left() == []


@pytest.mark.slow
def test_a_prepared_trial_goes_on_without_a_change_to_the_users_files(ground: Ground) -> None:
    write(ground, BEGINNING, end=TRAINS)
    study = opened(ground, "traps.py")
    with study.runner() as runner:
        result = run(runner, study.job())
    assert result.start is StartKind.PREPARED, result.start_reason
    assert "kept" not in result.log_tail
    assert changed(ground) == []


@pytest.mark.slow
@pytest.mark.parametrize("text", [IN_PLACE_OF_THE_FOLDER, IN_PLACE_OF_THE_REQUEST], ids=["folder", "request"])
def test_a_live_process_is_asked_for_more_without_a_change_to_the_users_files(ground: Ground, text: str) -> None:
    write(ground, text, end=TRAINS)
    study = opened(ground, "traps.py")
    with closing(LiveRunner(ForkRunner(study.cold, study.facts))) as runner:
        for num_workers in (0, 1, 0):
            settings = replace(study.script_settings, num_workers=num_workers)
            result = run(runner, replace(study.job(settings=settings), serves=True))
            assert result.outcome is Outcome.OK, result.why
            assert changed(ground) == []
    ground.check("links in place of later measurements", None)
