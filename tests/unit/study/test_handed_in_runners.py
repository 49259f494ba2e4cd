"""Whole searches, previews, recordings and diagnoses under runners handed in from outside: no process is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.diagnose.diagnosing import diagnose
from autotune.emit.tuned_config import read_config
from autotune.lab.function_runner import FunctionRunner, Measured
from autotune.lab.grid_file import read_grid
from autotune.lab.recording import RecordOptions, record
from autotune.lab.replay import ReplayRunner
from autotune.model.facts import LossReduction
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import Status
from autotune.settings import Settings
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from autotune.study.preview import preview
from autotune.study.searching import search
from autotune.verdict.aggregate import measurement_of
from tests.unit.diagnoses import observation
from tests.unit.facts import loader_facts, script_facts, search_spec
from tests.unit.runner.samples import rank

ADDED_LATER = ("matmul_precision", "activation_checkpointing")
"""Settings that the recordings do not have, and that a search on a CPU would try."""
GRID = Path(__file__).parents[2] / "data" / "grids" / "mlp-cpu2.jsonl"


class Opened:
    """Hands in one runner, and notes the facts of every opening; a started process fails the test."""

    def __init__(self, runner):
        self.runner, self.facts, self.jobs, self.num_closed = runner, [], [], 0

    def __call__(self, workspace, device, facts=None):
        self.facts.append(facts)
        return self

    def start(self, job):
        self.jobs.append(job)
        return self.runner.start(job)

    def close(self):
        self.num_closed += 1


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """The wishes for a script in a folder of its own; nothing but the handed-in runner can run the script."""

    def fails(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr("autotune.runner.cold_runner.subprocess.Popen", fails)
    monkeypatch.setattr("autotune.sandbox.workspace_places.tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("autotune.sandbox.layer_permission.is_permitted", lambda scratch, folders: False)
    monkeypatch.setattr("autotune.runner.quiet_wait.WAIT_LIMIT_S", 0.0)
    (tmp_path / "project").mkdir()
    script = tmp_path / "project" / "train.py"
    script.write_text("raise SystemExit(1)\n")

    def spec(**changes):
        values = {"script": str(script), "cwd": str(script.parent), "storage": str(tmp_path / "study.db")}
        return search_spec(command=("python", "train.py"), device="cpu", force=True, **{**values, **changes})

    return spec


def stored(spec):
    with Repository.open(resolve_url(spec.storage, Path(spec.cwd))) as repository:
        return repository.trials(spec.study), repository.finals(spec.study)


def test_a_plain_function_is_searched_from_the_probe_to_the_config(spec):
    def rate(settings):
        return Measured(samples_per_second=100.0 * (1 + min(settings.num_workers, 2)), peak_memory_bytes=1 << 28)

    opened = Opened(FunctionRunner(rate, script_facts()))
    asked = spec(max_trials=8, memory_cap="4GiB")
    result = search(asked, on_event=lambda event: None, open_runner=opened)
    assert (result.status, result.best.settings.num_workers) == (Status.IMPROVED, 2)
    assert result.speedup[0] == pytest.approx(3.0)
    assert read_config(Path(result.config)).settings == result.best.settings
    assert opened.facts[0] is None and opened.facts[1].loss_reduction is LossReduction.MEAN
    assert opened.num_closed == 1
    trials, finals = stored(asked)
    assert len(trials) == 8 and {trial.result.start for trial in (*trials, *finals)} == {"function"}


def grid_spec(spec, grid, **changes):
    """The wishes under which a search may visit the cells of a recording, and nothing else."""
    allowed = grid.header.space["allowed"]
    others = {name: values[0] for name, values in allowed.items() if len(values) == 1}
    later = {name: value for name, value in Settings().to_dict().items() if name in ADDED_LATER}
    fixed = tuple((name, str(value).lower()) for name, value in (others | later).items())
    return spec(ranges=grid.header.asked, fixed=fixed, memory_cap=grid.header.memory_cap, **changes)


def test_a_recorded_grid_is_searched_from_the_probe_to_the_config(spec):
    grid = read_grid(GRID)
    opened = Opened(ReplayRunner(grid, seed=7))
    asked = grid_spec(spec, grid, max_trials=20)
    result = search(asked, on_event=lambda event: None, open_runner=opened)
    assert result.status is Status.IMPROVED
    assert grid.regret(result.best.settings) < 0.1
    assert read_config(Path(result.config)).settings == result.best.settings
    trials, finals = stored(asked)
    assert len(trials) == 20 and {trial.result.start for trial in (*trials, *finals)} == {"replayed"}
    assert {trial.settings for trial in trials} <= set(grid.cells)


def test_the_same_seeds_over_the_same_recording_give_the_same_trials(spec, tmp_path):
    grid = read_grid(GRID)
    visited = []
    for number in range(2):
        asked = grid_spec(spec, grid, max_trials=8, storage=str(tmp_path / f"{number}.db"))
        search(asked, on_event=lambda event: None, open_runner=Opened(ReplayRunner(grid, seed=7)))
        visited.append([(trial.settings, trial.result.measurement) for trial in stored(asked)[0]])
    assert visited[0] == visited[1]


@pytest.mark.parametrize("reduction", list(LossReduction))
def test_the_probe_of_an_imagined_script_learns_the_reduction_that_its_facts_name(spec, reduction):
    loader = loader_facts(batch_size=67) if reduction is LossReduction.INDIVISIBLE else loader_facts()
    varies = reduction is LossReduction.TOKEN_MEAN
    facts = script_facts(loss_reduction=reduction, loss_targets_vary=varies, loader=loader)
    found = preview(
        spec(), run_probe=True, on_event=lambda event: None, open_runner=Opened(FunctionRunner(lambda _: 1.0, facts))
    )
    assert found.probe.facts.loss_reduction is reduction


def test_a_grid_is_recorded_through_a_runner_handed_in(spec, tmp_path):
    opened = Opened(FunctionRunner(lambda settings: 100.0 * (1 + settings.num_workers), script_facts()))
    asked = spec(ranges=(("num_workers", "0,1,2"),), memory_cap="4GiB")
    options = RecordOptions(out=tmp_path / "grid.jsonl", limit_s=60.0)
    recording = record(asked, options, on_event=lambda event: None, open_runner=opened)
    assert (recording.num_cells, recording.num_left) == (3, 0)
    grid = read_grid(options.out)
    assert grid.best.num_workers == 2
    assert opened.num_closed == 1


def test_a_script_is_diagnosed_through_a_runner_handed_in(spec):
    ranks = (rank(observation=observation()),)
    looked_at = TrialResult(outcome=Outcome.OK, measurement=measurement_of(ranks), ranks=ranks)
    opened = Opened(FunctionRunner(lambda settings: looked_at, script_facts()))
    found = diagnose(spec(memory_cap="4GiB"), on_event=lambda event: None, open_runner=opened)
    assert found.observation == observation()
    assert [job.diagnoses for job in opened.jobs] == [False, True]
