"""What later trials see of the probe's writes, and where the processes of a study write that run no script."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.model.result import TrialResult
from autotune.protocol.forking import ForkServerSpec
from autotune.protocol.job import Mode
from autotune.protocol.protection import ProtectionWish
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_server import ForkServer
from autotune.sandbox import handed_on
from autotune.sandbox.sandbox_error import SandboxError
from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.workspace import Workspace
from tests.integration.runner.ground import make_job
from tests.sandbox.playground import CPU, PRETEND

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="layers are Linux's")

SCRIPT = """
import os, sys, time, pretend
if sys.argv[1] == "probe":
    os.makedirs("data/extracted/one")
    os.makedirs("data/extracted/two")
    open("data/extracted/one/image", "w").write("read")
    open("data/extracted/two/image", "w").write("not read")
    time.sleep(0.02)
    open("data/extracted/one/image").read()
    os.makedirs("runs/1")
    open("runs/1/last.ckpt", "w").write("never read")
    open("log.txt", "a").write("more")
    os.remove("removed.txt")
    os.makedirs(os.environ["HF_HOME"] + "/hub", exist_ok=True)
    open(os.environ["HF_HOME"] + "/hub/model", "w").write("cached")
else:
    assert open("data/extracted/two/image").read() == "not read"
    assert open(os.environ["HF_HOME"] + "/hub/model").read() == "cached"
    os.makedirs("runs/1")
    assert open("log.txt").read() == "log" and os.path.exists("removed.txt")
pretend.report()
"""


class Study:
    """A project with a workspace over it."""

    def __init__(self, root: Path, mode: str = "layers") -> None:
        self.project = root / "project"
        self.project.mkdir()
        (self.project / "pretend.py").write_text(PRETEND.read_text())
        (self.project / "script.py").write_text(SCRIPT)
        (self.project / "log.txt").write_text("log")
        (self.project / "removed.txt").write_text("removed")
        try:
            wish = ProtectionWish(mode=mode)
            self.workspace = Workspace.open(None, cwd=self.project, command=(sys.executable, "script.py"), wish=wish)
        except SandboxError as error:
            pytest.skip(str(error))
        self.runner = ColdRunner(self.workspace, CPU)

    def probe(self) -> None:
        job = make_job(self.project, "script.py", "probe", mode=Mode.PROBE, start_limit_s=60.0, total_limit_s=60.0)
        self.runner.start(job).probe_result()
        self.workspace.probe_is_through()

    def trial(self, *arguments: str) -> TrialResult:
        job = make_job(self.project, "script.py", *arguments, start_limit_s=60.0, total_limit_s=60.0)
        return self.runner.start(job).result()


ALL_MODES = pytest.mark.parametrize("study", ["layers", "landlock", "none"], indirect=True)


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Study]:
    root = Path(tempfile.mkdtemp(prefix="study-", dir="/var/tmp")).resolve()
    (root / "home" / "hf").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(root / "home"))
    monkeypatch.setenv("HF_HOME", str(root / "home" / "hf"))
    made = Study(root, getattr(request, "param", "layers"))
    yield made
    made.workspace.remove()
    remove_tree(root)


@ALL_MODES
def test_trials_see_the_probes_downloads_and_caches_and_none_of_its_outputs(study: Study) -> None:
    study.probe()
    result = study.trial("trial")
    assert result.outcome == "ok", result.log_tail


@ALL_MODES
def test_without_all_but_caches_a_trial_starts_as_the_probe_did(study: Study) -> None:
    study.probe()
    assert study.workspace.keep_only_caches()
    assert study.trial("probe").outcome == "ok"
    assert not study.workspace.keep_only_caches()


def test_a_layer_on_a_disk_that_notes_no_reading_is_handed_on_whole(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.runner.start(make_job(study.project, "script.py", "probe", mode=Mode.PROBE)).probe_result()
    (layer,) = study.workspace.folder.glob("study/layer")
    monkeypatch.setattr(handed_on, "ST_NOATIME", os.statvfs(layer).f_flag or 1)
    assert handed_on.drop_outputs(layer) == 0


def test_a_refused_write_is_named_with_what_to_do(study: Study) -> None:
    library = next(Path(path) for path in study.workspace._read_only)
    (study.project / "script.py").write_text(f"open({str(library / 'new')!r}, 'w')\n")
    reason = study.trial().reason
    assert f"{library / 'new'} is read-only in trials; --writable {library / 'new'}" in reason


def test_what_is_writable_by_name_is_written_for_real_and_nothing_beside_it(study: Study) -> None:
    out = study.project / "out"
    out.mkdir()
    other = Workspace.open(
        None,
        cwd=study.project,
        command=(sys.executable, "script.py"),
        wish=ProtectionWish(writable=(str(out),)),
        study_id="writable",
    )
    (study.project / "script.py").write_text(
        "import pretend\nopen('out/kept', 'w').write('real')\nopen('beside', 'w').write('layer')\npretend.report()\n"
    )
    try:
        job = make_job(study.project, "script.py", start_limit_s=60.0, total_limit_s=60.0)
        assert ColdRunner(other, CPU).start(job).result().outcome == "ok"
    finally:
        other.remove()
    assert (out / "kept").read_text() == "real"
    assert not (study.project / "beside").exists()


def test_the_server_of_the_imports_is_in_its_layers_before_its_interpreter_starts(study: Study) -> None:
    (study.project / "sitecustomize.py").write_text(f"open({str(study.project / 'at_start')!r}, 'w').write('x')\n")
    folder = study.workspace.new_trial()
    environment = {**os.environ, "PYTHONPATH": str(study.project), "TMPDIR": str(folder / "tmp")}
    server = ForkServer(
        python=sys.executable,
        environment=environment,
        spec=ForkServerSpec(
            folder=str(folder),
            layers=study.workspace.mounts(folder, is_probe=False, is_server=True),
            writable=None,
            imports=(),
            own_modules=(),
        ),
    )
    try:
        server.go_on(())
        written = list(folder.rglob("at_start"))
        assert written
        assert not (study.project / "at_start").exists()
    finally:
        server.close()


def test_a_project_with_many_links_is_opened_without_following_them(study: Study) -> None:
    for number in range(1200):
        target = study.project.parent / "targets" / str(number)
        target.mkdir(parents=True)
        (study.project / f"link-{number}").symlink_to(target)
    (study.project / "script.py").write_text(
        "import pretend\nopen('link-700/by-a-trial', 'w')\nopen('link-1199/by-a-trial', 'w')\npretend.report()\n"
    )
    result = study.trial()
    assert result.outcome == "ok", result.log_tail
    assert not list(study.project.parent.rglob("by-a-trial"))


REPLACES_LINKS = """
import os, shutil, sys, pretend
temporary = os.path.dirname(os.path.dirname(os.environ["STUDY"]))
link, folder = temporary + "/latest.log", temporary + "/latest"
if sys.argv[1] == "probe":
    os.unlink(link)
    open(link, "w").write("of the probe")
    open(link).read()
    os.unlink(folder)
    os.mkdir(folder)
    open(folder + "/log", "w").write("of the probe")
    open(folder + "/log").read()
else:
    assert not os.path.islink(link) and open(link).read() == "of the probe"
    assert not os.path.islink(folder) and open(folder + "/log").read() == "of the probe"
pretend.report()
"""


def test_a_file_of_the_probe_in_place_of_the_users_link_does_not_go_where_the_link_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = Path(tempfile.mkdtemp(prefix="handed-", dir="/var/tmp"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "run.log").write_text("weeks")
    (tmp_path / "runs").mkdir()
    (temporary / "latest.log").symlink_to(tmp_path / "run.log")
    (temporary / "latest").symlink_to(tmp_path / "runs")
    study = Study(tmp_path)
    monkeypatch.setenv("STUDY", str(study.workspace.folder))
    (study.project / "script.py").write_text(REPLACES_LINKS)
    try:
        study.probe()
        result = study.trial("trial")
        assert result.outcome.value == "ok", f"{result.reason} {result.log_tail}"
        assert (tmp_path / "run.log").read_text() == "weeks"
        assert list((tmp_path / "runs").iterdir()) == []
    finally:
        study.workspace.remove()
        remove_tree(temporary)
