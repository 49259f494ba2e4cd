"""`autotune pack` as a command: whole runs, killed runs, wrong words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from autotune.storage import Packed

DATA = """
import os, time

class Squares:
    def __len__(self):
        return 60

    def __getitem__(self, index):
        if index == 33 and os.path.exists("broken"):
            raise OSError("no such image")
        time.sleep(float(os.environ.get("SLOW", "0")))
        print("read", index)
        return index, index ** 2

def squares():
    return Squares()

def stream():
    return iter(range(3))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data.py").write_text(DATA)
    return tmp_path


def command(*words):
    return [sys.executable, "-m", "autotune", "pack", *words]


def run(folder, *words, **environment):
    return subprocess.run(
        command(*words),
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_packing_killed_at_any_moment_goes_on_and_reads_every_sample_back(folder):
    words = ("data.py:squares", "--out", "packed", "--samples-per-part", "5", "--processes", "2", "--json")
    killed = subprocess.Popen(
        command(*words),
        cwd=folder,
        env={**os.environ, "SLOW": "0.05"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(list(folder.glob("packed/part-*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (folder / "packed" / "packed.json").exists()
    ended = run(folder, *words)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["num_kept_parts"] >= 2 and document["num_parts"] == 12
    packed = Packed(folder / "packed", checks=True)
    assert [packed[index] for index in range(60)] == [(index, index**2) for index in range(60)]
    assert not list((folder / "packed").glob(".*.tmp"))
    # Packing again changes nothing, and the check reads all bytes.
    assert json.loads(run(folder, *words).stdout)["num_kept_parts"] == 12
    (folder / "packed" / "part-00003.npy").write_bytes(b"x" * (folder / "packed" / "part-00003.npy").stat().st_size)
    checked = run(folder, "--check", "--out", "packed")
    assert checked.returncode == 2 and "part-00003.npy is damaged" in checked.stderr


def test_a_sample_that_cannot_be_read_is_named_and_finished_parts_stay(folder):
    (folder / "broken").touch()
    words = ("data.py:squares", "--out", "packed", "--samples-per-part", "10", "--processes", "1", "--json")
    failed = run(folder, *words)
    assert failed.returncode == 2
    assert "Sample 33 cannot be read: OSError: no such image" in failed.stderr and "Traceback" not in failed.stderr
    (folder / "broken").unlink()
    assert json.loads(run(folder, *words).stdout)["num_kept_parts"] == 3
    other = run(folder, "data.py:squares", "--out", "packed", "--to", "webdataset")
    assert other.returncode == 2 and "its format is npy, not webdataset" in other.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data.py",), "names no function"),
        (("missing.py:squares",), "There is no file missing.py"),
        (("data.py:nothing",), "data.py has no function nothing"),
        (("data.py:stream",), "which is no map-style dataset"),
        (("data.py:squares", "--to", "zip"), "There is no format 'zip'"),
        (("--check",), "holds no packed dataset"),
        ((), "No dataset is named"),
    ],
)
def test_wrong_words_are_explained(folder, capsys, monkeypatch, words, message):
    from autotune.cli.main import main

    monkeypatch.chdir(folder)
    assert main(["pack", *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown
