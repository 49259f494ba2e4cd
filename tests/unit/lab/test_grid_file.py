"""The file of a recording: what is written is read back, a torn end is left out, everything else is refused by line."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.lab.grid_file import create_grid, open_grid, read_grid
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult, RankStatus
from tests.unit.grids import grid, header, ok, over_cap, record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "grid.jsonl"


@pytest.fixture
def recorded(path):
    """A file with three measurements."""
    create_grid(path, header())
    with open_grid(path) as file:
        for cell, result in enumerate((ok(100.0), over_cap(), ok(50.0))):
            file.append(record(cell, result))
    return path


def lines(path):
    return path.read_bytes().split(b"\n")[:-1]


def test_what_was_written_is_read_back(path):
    complete = grid()
    create_grid(path, complete.header)
    rank = RankResult(rank=0, world_size=1, status=RankStatus.MEASURED, durations_s={"window": 2.0}, notes=("a",))
    full = replace(complete.records[0], load=1.5, anchor=3, result=replace(ok(3.0), ranks=(rank,), notes=("n",)))
    with open_grid(path) as file:
        for item in (*complete.records, full):
            file.append(item)
    found = read_grid(path)
    assert found.header == complete.header
    assert found.records == (*complete.records, full)


def test_defaults_are_not_written(recorded):
    line = json.loads(lines(recorded)[1])
    assert set(line) == {"cell", "round", "started_at", "result"}
    assert set(line["result"]) == {"outcome", "measurement", "peak_memory_bytes", "wall_s"}


def test_a_recording_goes_on_after_what_is_there(recorded):
    with open_grid(recorded) as file:
        assert [r.cell for r in file.records] == [0, 1, 2]
        file.append(record(3, ok(10.0)))
    assert [r.cell for r in read_grid(recorded).records] == [0, 1, 2, 3]


@pytest.mark.parametrize("num_bytes", [1, 20, 300])
def test_a_last_line_that_a_kill_cut_off_is_left_out_and_written_over(recorded, num_bytes):
    content = recorded.read_bytes()
    last = lines(recorded)[-1]
    recorded.write_bytes(content[: -len(last) - 1] + last[:num_bytes])
    assert [r.cell for r in read_grid(recorded).records] == [0, 1]
    with open_grid(recorded) as file:
        file.append(record(7, ok(10.0)))
    assert [r.cell for r in read_grid(recorded).records] == [0, 1, 7]


HOSTILE = [
    b"",
    b"not json",
    b"[]",
    b"null",
    b'{"cell": 0}',
    b'{"cell":-1,"round":0,"started_at":"","result":{"outcome":"over_cap"}}',
    b'{"cell":99,"round":0,"started_at":"","result":{"outcome":"over_cap"}}',
    b'{"cell":true,"round":0,"started_at":"","result":{"outcome":"over_cap"}}',
    b'{"cell":0,"round":0,"started_at":"","result":{"outcome":"ok"}}',
    b'{"cell":0,"round":0,"started_at":"","result":{"outcome":"fine"}}',
    b'{"cell":0,"round":0,"started_at":"","result":[]}',
    b'{"cell":0,"round":0,"started_at":"","load":NaN,"result":{"outcome":"over_cap"}}',
    b'{"cell":0,"round":0,"started_at":"","load":1e999,"result":{"outcome":"over_cap"}}',
    b"\xff\xfe\x00",
    b"[" * 100_000,
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_damaged_line_is_refused_by_its_number(recorded, line):
    first, second, *rest = lines(recorded)
    recorded.write_bytes(b"\n".join([first, second, line, *rest, b""]))
    with pytest.raises(UsageError, match="line 3"):
        read_grid(recorded)


@pytest.mark.parametrize("line", [*HOSTILE, b'{"schema":2}'], ids=range(len(HOSTILE) + 1))
def test_a_file_without_a_header_of_ours_is_refused_and_not_touched(path, line):
    path.write_bytes(line + b"\n")
    with pytest.raises(UsageError, match="line 1"), open_grid(path):
        pass
    assert path.read_bytes() == line + b"\n"


def test_a_file_that_ends_before_its_first_line_does_is_refused_and_not_touched(path):
    path.write_bytes(b"my notes")
    with pytest.raises(UsageError, match="no header"), open_grid(path):
        pass
    assert path.read_bytes() == b"my notes"


def test_a_header_whose_settings_are_impossible_is_refused(recorded):
    plain = json.loads(lines(recorded)[0])
    plain["cells"][1] = {"num_workers": -3}
    recorded.write_text(json.dumps(plain) + "\n")
    with pytest.raises(UsageError, match="line 1"):
        read_grid(recorded)


def test_fields_of_other_versions_are_left_out(recorded):
    first, second, *rest = (json.loads(line) for line in lines(recorded))
    first["facts"]["of_tomorrow"] = first["of_tomorrow"] = {"a": 1}
    first["facts"]["loader"]["of_tomorrow"] = 1
    second["result"]["of_tomorrow"] = second["result"]["measurement"]["of_tomorrow"] = [1]
    second["result"]["ranks"] = [{"rank": 0, "world_size": 1, "status": "measured", "of_tomorrow": 1}]
    recorded.write_text("".join(json.dumps(plain) + "\n" for plain in (first, second, *rest)))
    found = read_grid(recorded)
    assert found.header == header()
    assert [r.result.outcome for r in found.records] == [Outcome.OK, Outcome.OVER_CAP, Outcome.OK]


def test_a_new_recording_replaces_nothing(recorded):
    before = recorded.read_bytes()
    with pytest.raises(UsageError, match="cannot be made"):
        create_grid(recorded, header())
    assert recorded.read_bytes() == before
    assert [p.name for p in recorded.parent.iterdir()] == [recorded.name]


def test_a_link_under_the_temporary_name_leads_nowhere(path):
    theirs = path.with_name("theirs")
    theirs.write_text("kept")
    path.with_name(f"{path.name}.{os.getpid()}").symlink_to(theirs)
    with pytest.raises(UsageError, match="cannot be made"):
        create_grid(path, header())
    assert theirs.read_text() == "kept"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none/grid\.jsonl"):
        create_grid(tmp_path / "none" / "grid.jsonl", header())


def test_two_processes_cannot_record_to_one_file(recorded):
    with open_grid(recorded), pytest.raises(UsageError, match="Another process"), open_grid(recorded):
        pass


def test_a_file_that_is_not_there_is_named(path):
    with pytest.raises(UsageError, match=r"grid\.jsonl"):
        read_grid(path)
