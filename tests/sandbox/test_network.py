"""The network of trials: the probe's is the machine's, and later trials have the loopback alone until one fails."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.model.result import TrialResult
from autotune.protocol.job import Mode
from autotune.protocol.protection import ProtectionWish
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.workspace import Workspace
from tests.integration.runner.ground import make_job
from tests.sandbox.playground import CPU, PRETEND
from tests.unit.facts import script_facts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="network namespaces are Linux's")
SCRIPT = """
import socket, sys, pretend
server = socket.create_server((socket.gethostbyname(socket.gethostname()), 0))
socket.create_connection(server.getsockname())
socket.create_connection(("127.0.0.1", int(sys.argv[1])))
pretend.report()
"""


class Study:
    """A script that needs a service of the machine, and a workspace over the script's folder."""

    def __init__(self, root: Path, wish: ProtectionWish | None = None) -> None:
        self._project = root / "project"
        self._project.mkdir()
        (self._project / "pretend.py").write_text(PRETEND.read_text())
        (self._project / "script.py").write_text(SCRIPT)
        self._service = socket.create_server(("127.0.0.1", 0))
        self.workspace = Workspace.open(None, cwd=self._project, command=(sys.executable, "script.py"), wish=wish)
        self.runner = ColdRunner(self.workspace, CPU)

    def run(self, mode: Mode = Mode.TRIAL, *, is_forked: bool = False) -> TrialResult:
        """The result of one run."""
        port = str(self._service.getsockname()[1])
        job = make_job(self._project, "script.py", port, mode=mode, start_limit_s=60.0, total_limit_s=60.0)
        if not is_forked:
            return self.runner.start(job).result()
        with ForkRunner(self.runner, script_facts(imports=("json",))) as runner:
            result = runner.start(job).result()
            assert result.start == "forked", result.start_reason
            return result

    def close(self) -> None:
        """Ends the service, and removes the workspace."""
        self._service.close()
        self.workspace.remove()


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="network-", dir="/var/tmp")).resolve()
    (made / "home").mkdir()
    monkeypatch.setenv("HOME", str(made / "home"))
    yield made
    remove_tree(made)


@pytest.fixture
def study(root: Path) -> Iterator[Study]:
    made = Study(root)
    yield made
    made.close()


def test_the_probe_has_the_network_and_later_trials_have_none_until_they_are_connected(study: Study) -> None:
    if not study.workspace.is_cut_off:
        pytest.skip("this system permits no network of a trial's own")
    assert study.run(Mode.PROBE).outcome == "ok"
    failed = study.run()
    assert failed.outcome == "crashed"
    assert "Connection refused" in failed.log_tail
    assert study.workspace.connect()
    assert study.run().outcome == "ok"
    assert not study.workspace.connect()


def test_forked_trials_have_no_network_either(study: Study) -> None:
    if not study.workspace.is_cut_off:
        pytest.skip("this system permits no network of a trial's own")
    failed = study.run(is_forked=True)
    assert failed.outcome == "crashed"
    assert "Connection refused" in failed.log_tail


def test_a_study_that_needed_the_network_has_it_after_a_resume(root: Path) -> None:
    project = root / "project"
    project.mkdir()
    spaces = []
    for _ in range(2):
        spaces.append(Workspace.open(None, cwd=project, command=(sys.executable, "script.py"), study_id="resumed"))
        if not spaces[0].is_cut_off and len(spaces) == 1:
            spaces[0].remove()
            pytest.skip("this system permits no network of a trial's own")
        spaces[-1].connect()
        spaces[-1].probe_is_through()
        spaces[-1].leave()
    assert not spaces[-1].is_cut_off
    spaces[-1].remove()


def test_trials_keep_the_network_by_wish(root: Path) -> None:
    study = Study(root, ProtectionWish(keeps_network=True))
    try:
        assert not study.workspace.is_cut_off
        assert study.run().outcome == "ok"
    finally:
        study.close()
