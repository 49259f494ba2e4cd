"""A grid recorded by its command, with real processes: killed, gone on with, refused elsewhere, and then searched."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from autotune.lab.function_search import search_function
from autotune.lab.grid_file import read_grid
from autotune.lab.grid_space import recorded_space
from autotune.lab.replay import ReplayRunner
from autotune.model.result import StartKind
from tests.integration.search.test_search_command import SCRIPT, autotune, files_of, finished, strays

GRID = ["--set", "num_workers=0,2", "--set", "batch_size=8,16", "--fix", "intra_op_threads=1", "--memory-cap", "8GiB"]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "home").mkdir(parents=True)
    (folder / "train.py").write_bytes(SCRIPT.read_bytes())
    return folder


def record(project, *more):
    command = ["record", "train.py", *GRID, "--out", "../grid.jsonl", "--window", "1s", "--json", *more]
    return autotune(project, *command)


@pytest.mark.slow
def test_a_recording_that_is_killed_goes_on_and_can_be_searched(project):
    before = files_of(project)
    out = project.parent / "grid.jsonl"
    process = record(project)
    deadline = time.monotonic() + 120
    while not (out.exists() and len(out.read_bytes().split(b"\n")) >= 4):
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    num_kept = len(read_grid(out).records)
    assert num_kept >= 2
    with out.open("ab") as stream:
        stream.write(b'{"cell":1,"rou')  # as a kill in the middle of a write would leave it
    code, output, talk = finished(record(project))
    assert code == 0, talk
    assert json.loads(output)["num_left"] == 0 and json.loads(output)["num_cells"] == 4
    grid = read_grid(out)
    assert grid.missing == () and grid.feasible_share == 1.0
    assert len(grid.records) == 8 + 1 + 2 + 2  # own turns; the first anchor has no second one yet
    assert grid.best.num_workers == 2
    assert grid.regret(grid.cells[0]) > 0.3
    assert files_of(project) == before and not strays(project)
    found = search_function(
        ReplayRunner(grid).answer, recorded_space(grid), cap_bytes=grid.header.memory_cap_bytes, max_trials=4
    )
    assert found.best.settings.num_workers == 2


@pytest.mark.slow
def test_the_end_of_the_time_leaves_the_rest_and_other_options_are_refused_by_name(project):
    code, output, talk = finished(record(project, "--time", "25s"))
    assert code == 0, talk
    assert json.loads(output)["num_left"] > 0
    code, output, talk = finished(record(project, "--window", "2s", "--seed", "3", "--", "--seconds", "50"))
    assert code == 2 and output == ""
    assert "the command has changed" in talk and "window_s: 2.0, was 1.0" in talk and "seed: 3, was 0" in talk


@pytest.mark.slow
def test_cells_are_measured_live_unless_each_is_to_have_a_fresh_process(project):
    out = project.parent / "grid.jsonl"
    more = ("--set", "omp_wait_policy=default,passive", "--repeats", "1")
    code, output, talk = finished(record(project, *more))
    assert code == 0, talk
    grid, document = read_grid(out), json.loads(output)
    starts = [record.result.start for record in grid.records]
    assert grid.missing == () and len(grid.cells) == 8 and grid.header.start == "live"
    assert starts.count(StartKind.LIVE) >= len(starts) // 2, starts
    assert document["num_by_start"] == grid.num_by_start and document["num_by_start"]["live"] >= 4
    code, _, talk = finished(record(project, *more, "--start", "fresh"))
    assert code == 2 and "start: 'fresh', was 'live'" in talk
    code, output, talk = finished(record(project, *more, "--start", "fresh", "--out", "../fresh.jsonl"))
    assert code == 0, talk
    assert "live" not in json.loads(output)["num_by_start"]


def test_a_callable_is_searched_without_torch_or_a_database_or_the_tuners_processes():
    program = (
        "import sys; from autotune.settings import Settings; from autotune.lab.grid_space import space_over\n"
        "from autotune.lab.function_search import search_function\n"
        "found = search_function(lambda s: 1.0 + s.num_workers, space_over(Settings(), {'num_workers': (1, 2)}))\n"
        "assert found.best.settings.num_workers == 2\n"
        "assert not {'torch', 'psutil', 'pynvml', 'rich', 'typer'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)
