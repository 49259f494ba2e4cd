"""Whole searches in this process: everything of the tuner, over a callable in place of the user's script."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from autotune.lab.function_runner import FinishedRun, FunctionRunner, Measured
from autotune.model.result import ProbeResult
from autotune.spec import SearchSpec
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from autotune.study.searching import resume, search
from autotune.study.stop import StopRequest
from autotune.units import MIB
from tests.unit.facts import script_facts

FACTS = script_facts(num_batch_norms=3)


def by_workers(settings):
    """More workers, more samples."""
    return Measured(
        samples_per_second=100.0 * (1 + min(settings.num_workers, 2)),
        peak_memory_bytes=(200 + 50 * settings.num_workers) * MIB,
        compute_samples_per_second=400.0,
    )


class Scripted:
    """The runner of all searches of one test: what is measured, what the probe says, and what was run."""

    def __init__(self):
        self.measure = by_workers
        self.facts = FACTS
        self.probe_error = None
        self.is_probe_interrupted = False
        self.ran = []
        self.num_probes = 0

    def start(self, job):
        if job.request.settings is None:
            self.num_probes += 1
            if self.is_probe_interrupted:
                return FinishedRun(ProbeResult(facts=None, is_interrupted=True), None)
            if self.probe_error is not None:
                return FinishedRun(ProbeResult(facts=None, reason=self.probe_error, log_tail="no such file"), None)
        elif job.request.batch_probe_factor is None:
            self.ran.append(job.request.settings)
        return FunctionRunner(lambda settings: self.measure(settings), self.facts).start(job)

    def close(self):
        """Keeps no process."""


class Folder:
    """A user's folder with a script, searched with `search` and `resume`."""

    def __init__(self, path: Path, database: Path, runner: Scripted):
        self.path, self.database, self.runner = path, database, runner
        self.events = []
        self.script = path / "train.py"
        self.script.write_text("import model\n")
        (path / "model.py").write_text("width = 1\n")

    def spec(self, **changes):
        values = {
            "command": ("python", "train.py"),
            "script": str(self.script),
            "cwd": str(self.path),
            "study": "train",
            "storage": str(self.database),
            "max_trials": 6,
            "device": "cpu",
            "memory_cap": "4GiB",
            "force": True,
        }
        return SearchSpec(**{**values, **changes})

    def open_runner(self, workspace, device, facts=None):
        return self.runner

    def search(self, *, stop=None, **changes):
        stop = stop or StopRequest()
        return search(self.spec(**changes), on_event=self.events.append, stop=stop, open_runner=self.open_runner)

    def resume(self, study="train", *, stop=None, **limits):
        storage = str(self.database)
        return resume(
            study,
            storage=storage,
            cwd=self.path,
            on_event=self.events.append,
            stop=stop,
            open_runner=self.open_runner,
            **limits,
        )

    def repository(self):
        return Repository.open(resolve_url(str(self.database), self.path))

    def studies(self):
        with self.repository() as repository:
            return [study.name for study in repository.studies()]

    def notices(self):
        return [event.message for event in self.events if hasattr(event, "message")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    runner = Scripted()
    (tmp_path / "project").mkdir()
    (tmp_path / "space").mkdir()
    monkeypatch.setattr("autotune.sandbox.workspace_places.tempfile.gettempdir", lambda: str(tmp_path / "space"))
    monkeypatch.setattr("autotune.sandbox.layer_permission.is_permitted", lambda scratch, folders: False)
    monkeypatch.setattr("autotune.study.target.has_bf16_instructions", lambda: False)  # alike on every machine
    monkeypatch.setattr("autotune.runner.quiet_wait.WAIT_LIMIT_S", 0.0)
    monkeypatch.setattr("autotune.runner.quiet_wait.BETWEEN_LOOKS_S", 0.0)
    # In memory where there is such a place: hundreds of commits to a busy disk take minutes.
    place = tempfile.mkdtemp(dir="/dev/shm") if Path("/dev/shm").is_dir() else str(tmp_path)
    yield Folder(tmp_path / "project", Path(place, "study.db"), runner)
    shutil.rmtree(place, ignore_errors=True)
