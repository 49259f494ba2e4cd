"""The command line with a tuner that only notes what it is asked, in a folder with a small script."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest

import autotune.study
from autotune.cli.main import main
from autotune.model.search_result import SearchResult
from autotune.model.trial_records import TrialRecord
from autotune.spec import SearchSpec
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.store.url import resolve_url

from ..unit.facts import script_facts
from ..unit.report.examples import NATURAL, PROBED, STARTED, TUNED, finished, measured, search_result

CREATED = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)


@dataclass
class FakeTuner:
    """Stands in for `autotune.study.searching` and `.preview`."""

    result: SearchResult = field(default_factory=search_result)
    error: BaseException | None = None
    specs: list[SearchSpec] = field(default_factory=list)
    resumed: list[tuple[str, str]] = field(default_factory=list)
    limits: list[dict[str, Any]] = field(default_factory=list)
    previews: list[bool] = field(default_factory=list)
    stop: Any = None

    def search(self, spec: SearchSpec, *, on_event: Any, stop: Any = None) -> SearchResult:
        self.specs.append(spec)
        self.stop = stop
        for event in (STARTED, PROBED, finished(0, NATURAL, measured(1294.0), is_best=True)):
            on_event(event)
        if self.error is not None:
            raise self.error
        return self.result

    def resume(self, study: str, *, storage: str, cwd: Any, on_event: Any, **others: Any) -> SearchResult:
        self.resumed.append((study, storage))
        self.limits.append({name: others[name] for name in ("budget_s", "max_trials") if name in others})
        on_event(finished(9, TUNED, measured(3000.0), is_best=True))
        if self.error is not None:
            raise self.error
        return self.result

    def preview(self, spec: SearchSpec, *, run_probe: bool, on_event: Any, stop: Any = None) -> Any:
        from .plans import plan

        self.specs.append(spec)
        self.previews.append(run_probe)
        if self.error is not None:
            raise self.error
        return plan(spec, run_probe=run_probe)


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> FakeTuner:
    fake = FakeTuner()
    for name in ("searching", "preview"):
        module = ModuleType(f"autotune.study.{name}")
        module.__dict__.update(search=fake.search, resume=fake.resume, preview=fake.preview, Preview=object)
        monkeypatch.setitem(sys.modules, f"autotune.study.{name}", module)
        monkeypatch.setattr(autotune.study, name, module, raising=False)
    # It was made with whatever tuner was there when it was first imported.
    monkeypatch.delitem(sys.modules, "autotune.cli.dry_run", raising=False)
    monkeypatch.delattr("autotune.cli.dry_run", raising=False)
    return fake


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, with a script, and without variables of ours."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "AUTOTUNE_STORAGE", "AUTOTUNE_STUDY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    return tmp_path


@pytest.fixture
def cli(capsys):
    """Runs a command line: exit code, standard output, standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def trial_record(number: int, settings: Any, result: Any) -> TrialRecord:
    return TrialRecord(
        number=number,
        settings=settings,
        stage="baseline" if number == 0 else "workers",
        result=result,
        started_at=CREATED,
        finished_at=CREATED,
        optuna_told=True,
    )


@pytest.fixture
def stored(folder):
    """Stores studies in the default database of the folder."""

    def store(name: str = "train", *, trials: Any = (), result: SearchResult | None = None, **spec: Any) -> None:
        facts = spec.pop("facts", script_facts())
        values = {"command": ("python", "train.py", "--api-key", "hunter2"), "script": str(folder / "train.py")}
        asked = SearchSpec(**{**values, "cwd": str(folder), "study": name, **spec})
        with Repository.open(resolve_url("", folder)) as repository:
            record = StudyRecord(
                name=name, spec=asked, fingerprint={}, created_at=CREATED, memory_cap_bytes=16 * 1024**3, spent_s=61.0
            )
            repository.create_study(record)
            repository.save_probe(
                name,
                facts=facts,
                script_settings=NATURAL,
                refused=(("compile", "no compiler"),),
                memory_cap_bytes=16 * 1024**3,
                layer_folder="",
            )
            for trial in trials:
                repository.record_trial(name, trial)
            if result is not None:
                result = replace(result, study=name)
                repository.set_status(name, result.status.value, result.document())

    return store
