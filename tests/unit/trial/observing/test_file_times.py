from __future__ import annotations

import builtins
import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from autotune.trial.observing.file_times import FileTimes, Part


@pytest.fixture
def times():
    before = builtins.open, io.open, os.open, os.read, np.fromfile
    times = FileTimes()
    times.attach()
    yield times
    times.detach()
    assert (builtins.open, io.open, os.open, os.read, np.fromfile) == before


@pytest.fixture
def building(times):
    times.begin()
    yield times
    times.end()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sample.bin"
    path.write_bytes(bytes(range(256)) * 400)
    return path


def test_nothing_is_timed_outside_the_building_of_a_batch(times, file):
    with open(file, "rb") as opened:
        assert len(opened.read()) == 102400
    assert times.num_files == 0 and not times.watch.seconds


def whole(path, **options):
    with open(path, "rb", **options) as opened:
        return opened.read()


def in_pieces(path):
    with open(path, "rb") as opened:
        return b"".join(iter(lambda: opened.read(1000), b""))


READERS = {
    "open": whole,
    "pathlib": Path.read_bytes,
    "unbuffered": lambda path: whole(path, buffering=0),
    "numpy": lambda path: np.fromfile(path, np.uint8).tobytes(),
    "in pieces": in_pieces,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_what_is_read_is_the_same_and_time_goes_to_opening_and_reading(building, file, read):
    assert read(file) == bytes(range(256)) * 400
    assert sum(building.watch.seconds[part] for part in (Part.OPEN, Part.READ)) > 0


def test_files_and_bytes_are_counted(building, file):
    for _ in range(3):
        with open(file, "rb") as opened:
            opened.seek(2400)
            assert opened.tell() == 2400 and opened.read(1)[0] == 2400 % 256
    assert building.num_files == 3 and building.read_bytes > 0


def test_text_comes_as_it_always_does(building, tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes("a\r\nä\r\n".encode())
    with open(path, encoding="utf-8") as opened:
        assert opened.mode == "r" and opened.name == str(path)
        assert list(opened) == ["a\n", "ä\n"]
    assert [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()] == ["a", "ä"]


def test_a_file_that_is_not_there_is_not_there(building, tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        whole(tmp_path / "missing")
    assert building.num_files == 0


def test_numpy_reads_its_own_files_through_it(building, tmp_path):
    array = np.arange(5000.0)
    np.save(tmp_path / "a.npy", array)
    assert (np.load(tmp_path / "a.npy") == array).all()
    assert (np.load(tmp_path / "a.npy", mmap_mode="r") == array).all()
    assert building.read_bytes >= array.nbytes


def test_files_written_meanwhile_are_left_alone(building, tmp_path):
    with open(tmp_path / "log.txt", "w") as opened:
        opened.write("x")
    assert Path(tmp_path / "log.txt").read_text() == "x"


def test_another_thread_is_not_timed(building, file):
    thread = threading.Thread(target=file.read_bytes)
    thread.start()
    thread.join()
    assert building.num_files == 0


def test_decoding_is_what_the_decoder_takes_without_its_reading(times, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow comes with the extra for studies")
    path = tmp_path / "a.png"
    image.fromarray(np.zeros((200, 200, 3), np.uint8)).save(path)
    times.detach()
    times.attach()
    times.begin()
    pixels = np.asarray(image.open(path))
    times.end()
    assert pixels.shape == (200, 200, 3)
    assert times.watch.seconds[Part.DECODE] > 0 and times.decode_s_by["PIL"] > 0
    assert times.num_files == 1


def test_a_format_with_a_decoder_of_its_own_is_decoded_and_noted_once(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "sample.webp"
    image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(path)
    image.open(path).close()  # PIL imports its plugins at the first image
    times = FileTimes()
    times.images = []
    times.attach()
    try:
        times.begin()
        np.asarray(image.open(path).convert("RGB"))
        times.end()
    finally:
        times.detach()
    assert times.images == [str(path)]
    assert times.decode_s_by["PIL"] == pytest.approx(times.watch.seconds[Part.DECODE]) and times.decode_s_by["PIL"] > 0
