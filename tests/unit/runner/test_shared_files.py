"""What a killed trial left in shared memory, in a folder that stands for it."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.runner.shared_files import present, remove_new

NO_SUCH_PID = 2**22 + 1


def put(folder: Path, name: str, mode: int = 0o600) -> Path:
    path = folder / name
    path.touch()
    path.chmod(mode)
    return path


def test_new_files_of_known_names_are_removed(tmp_path: Path) -> None:
    before = present(tmp_path)
    names = {f"torch_{NO_SUCH_PID}_123_0", "psm_ab12", "sem.mp-x1", "nccl-Abc"}
    for name in names:
        put(tmp_path, name)
    put(tmp_path, "dataset.bin")
    assert set(remove_new(before, tmp_path)) == names
    assert [path.name for path in tmp_path.iterdir()] == ["dataset.bin"]


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    put(tmp_path, "psm_old")
    assert remove_new(present(tmp_path), tmp_path) == ()
    assert (tmp_path / "psm_old").exists()


def test_an_old_name_with_a_new_file_is_removed(tmp_path: Path) -> None:
    old = put(tmp_path, "psm_x")
    before = present(tmp_path)
    put(tmp_path, "other")  # takes the next inode, so that the old one is not given out again
    old.rename(tmp_path / "kept")
    put(tmp_path, "psm_x")
    assert remove_new(before, tmp_path) == ("psm_x",)


def test_what_others_may_open_stays(tmp_path: Path) -> None:
    before = present(tmp_path)
    put(tmp_path, "psm_public", mode=0o666)
    (tmp_path / "psm_folder").mkdir(mode=0o700)
    (tmp_path / "psm_link").symlink_to("/etc/passwd")
    assert remove_new(before, tmp_path) == ()


def test_what_a_process_has_open_stays(tmp_path: Path) -> None:
    before = present(tmp_path)
    with put(tmp_path, "psm_open").open("wb"):
        assert remove_new(before, tmp_path) == ()
    assert remove_new(before, tmp_path) == ("psm_open",)


def test_what_a_process_has_mapped_stays(tmp_path: Path) -> None:
    import mmap

    before = present(tmp_path)
    path = put(tmp_path, "psm_mapped")
    path.write_bytes(b"x" * 4096)
    descriptor = os.open(path, os.O_RDWR)
    mapped = mmap.mmap(descriptor, 4096)
    os.close(descriptor)
    assert remove_new(before, tmp_path) == ()
    mapped.close()
    assert remove_new(before, tmp_path) == ("psm_mapped",)


def test_what_a_living_process_made_stays(tmp_path: Path) -> None:
    before = present(tmp_path)
    put(tmp_path, f"torch_{os.getpid()}_123_0")
    assert remove_new(before, tmp_path) == ()


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
    assert present(tmp_path / "gone") == frozenset()
    assert remove_new(frozenset(), tmp_path / "gone") == ()
