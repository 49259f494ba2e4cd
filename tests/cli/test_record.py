"""`autotune record`: what is asked of the tuner, what is printed, and the exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.lab import recording
from autotune.lab.grid_file import create_grid, open_grid
from autotune.lab.recording import Recording
from autotune.settings import Settings

from ..unit.grids import grid
from ..unit.report.examples import finished, measured

DONE = Recording(
    out=Path("grid.jsonl"),
    num_cells=20,
    num_dropped=3,
    num_measurements=40,
    num_by_start={"live": 38, "forked": 2},
    num_left=0,
    num_infeasible=5,
    drift_ratio=0.043,
    is_interrupted=False,
    wall_s=70.0,
)


@pytest.fixture
def asked(monkeypatch):
    """What the tuner was asked; it gives `asked.recording`, or raises it."""

    class Asked:
        spec = options = None
        recording = DONE
        event = None

    def record(spec, options, *, on_event, stop):
        Asked.spec, Asked.options = spec, options
        if Asked.event is not None:
            on_event(Asked.event)
        if isinstance(Asked.recording, BaseException):
            raise Asked.recording
        return Asked.recording

    monkeypatch.setattr(recording, "record", record)
    return Asked


def test_a_recording_needs_a_file(cli):
    code, out, err = cli("record", "train.py")
    assert (code, out) == (2, "")
    assert "--out" in err


def test_what_was_asked_reaches_the_tuner(cli, asked, folder):
    words = (
        "--set num_workers=0,1,2 --fix precision=bf16 --memory-cap 4GiB --repeats 3 --time 9m --window 2.5s --seed 4"
    )
    code, _, _ = cli("record", "train.py", "--out", "grid.jsonl", *words.split(), "--", "--epochs", "9")
    assert code == 0
    assert asked.spec.command[1:] == ("train.py", "--epochs", "9")
    assert (asked.spec.ranges, asked.spec.fixed) == ((("num_workers", "0,1,2"),), (("precision", "bf16"),))
    assert (asked.spec.memory_cap, asked.spec.seed) == ("4GiB", 4)
    assert asked.options == recording.RecordOptions(out=Path("grid.jsonl"), repeats=3, limit_s=540.0, window_s=2.5)


def test_the_time_of_a_study_file_is_of_searches(cli, asked, folder):
    (folder / "study.toml").write_text("script = 'train.py'\ntime = '5m'\nout = 'tuned.yaml'\nmemory_cap = '1GiB'\n")
    assert cli("record", "--out", "grid.jsonl")[0] == 0
    assert asked.options.limit_s == 12 * 3600.0 and asked.options.window_s is None
    assert asked.options.out == Path("grid.jsonl") and asked.spec.memory_cap == "1GiB"


@pytest.mark.parametrize(
    "words", [["--time", "soon"], ["--window", "-1s"], ["--repeats", "0"], ["--repeats", "x"], ["--set", "num_workers"]]
)
def test_options_that_mean_nothing_are_usage_errors(cli, asked, words):
    code, out, err = cli("record", "train.py", "--out", "grid.jsonl", *words)
    assert (code, out) == (2, "")
    assert words[0] in err or words[-1] in err
    assert asked.spec is None


def test_a_script_that_is_not_there_is_a_usage_error(cli, asked):
    assert cli("record", "none.py", "--out", "grid.jsonl")[0] == 2


def test_arguments_of_the_script_go_after_two_dashes(cli, asked):
    code, _, err = cli("record", "train.py", "--out", "grid.jsonl", "--epochs", "9")
    assert code == 2 and "go after --" in err


def test_a_complete_recording_says_so(cli, asked):
    code, out, _ = cli("record", "train.py", "--out", "grid.jsonl")
    assert code == 0
    assert "20 cells, 3 combinations are not legal; 5 over the cap so far (25%)" in out
    assert "measured 38 live (95%), 2 forked (5%)" in out
    assert "40 measurements in the file, 0 left" in out and "by up to 4.3%" in out and out.endswith("Complete.\n")


def test_the_end_of_the_time_is_no_failure_and_says_how_much_is_left(cli, asked):
    asked.recording = replace(DONE, num_measurements=30, num_left=10)
    code, out, _ = cli("record", "train.py", "--out", "grid.jsonl")
    assert code == 0
    assert "10 left" in out and "The same command again goes on." in out


def test_an_interrupted_recording_ends_with_130_unless_it_was_complete(cli, asked):
    asked.recording = replace(DONE, num_left=10, is_interrupted=True)
    assert cli("record", "train.py", "--out", "grid.jsonl")[0] == 130
    asked.recording = replace(DONE, is_interrupted=True)
    assert cli("record", "train.py", "--out", "grid.jsonl")[0] == 0
    asked.recording = InterruptedError()
    code, out, err = cli("record", "train.py", "--out", "grid.jsonl")
    assert (code, out) == (130, "") and "Interrupted" in err


def test_json_is_one_document(cli, asked):
    code, out, _ = cli("record", "train.py", "--out", "grid.jsonl", "--json", "--quiet")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == 1 and document["num_left"] == 0 and document["out"] == "grid.jsonl"
    assert document["num_by_start"] == {"live": 38, "forked": 2}
    assert set(document) == {"schema", *recording.Recording.__slots__} - {"is_interrupted"}


def test_a_resume_compares_with_the_baseline_in_the_file(cli, asked, folder):
    complete = grid()
    create_grid(folder / "grid.jsonl", complete.header)
    with open_grid(folder / "grid.jsonl") as file:
        file.append(complete.records[0])
    rate = complete.records[0].result.measurement.samples_per_second
    asked.event = finished(3, complete.cells[1], measured(2 * rate))
    _, _, err = cli("record", "train.py", "--out", "grid.jsonl")
    assert "2.00x" in err and "precision=bf16" in err


def test_a_file_that_is_no_recording_is_refused(cli, asked, folder):
    (folder / "grid.jsonl").write_text("my notes\n")
    code, _, err = cli("record", "train.py", "--out", "grid.jsonl")
    assert code == 2 and "line 1" in err
    assert (folder / "grid.jsonl").read_text() == "my notes\n"


def test_a_recording_streams_its_events_and_ends_with_what_it_came_to(cli, asked, folder):
    asked.event = finished(1, Settings(batch_size=64, num_workers=2), measured(900.0))
    code, out, err = cli("record", "train.py", "--out", "grid.jsonl", "--jsonl")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["event"] for line in lines] == ["trial_finished", "result"]
    assert lines[-1]["num_measurements"] == 40
    assert "Complete." not in out and "900" in err
