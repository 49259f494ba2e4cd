"""What a killed trial left in shared memory, in a folder that stands for it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from autotune.sandbox.shared_files import SharedFiles, present

NO_SUCH_PID = 2**22 + 1


def put(folder: Path, name: str, mode: int = 0o600) -> Path:
    path = folder / name
    path.touch()
    path.chmod(mode)
    return path


def watch(folder: Path, *makers: int) -> SharedFiles:
    """A trial that begins now, whose processes were these."""
    files = SharedFiles(present(folder), folder)
    files.note(makers)
    return files


def used_by_us(files: SharedFiles, *paths: Path) -> None:
    """Has the trial seen with these open."""
    opened = [path.open("wb") for path in paths]
    files.note([os.getpid()])
    for file in opened:
        file.close()


def test_new_files_of_known_names_that_the_trial_had_open_are_removed(tmp_path: Path) -> None:
    files = watch(tmp_path)
    names = {f"torch_{NO_SUCH_PID}_123_0", "psm_ab12", "sem.mp-x1", "nccl-Abc"}
    used_by_us(files, *(put(tmp_path, name) for name in names), put(tmp_path, "dataset.bin"))
    assert set(files.remove()) == names
    assert [path.name for path in tmp_path.iterdir()] == ["dataset.bin"]


def test_what_nobody_was_seen_with_stays_for_it_may_be_in_use_where_we_cannot_see(tmp_path: Path) -> None:
    files = watch(tmp_path, NO_SUCH_PID)
    for name in ("psm_x", "sem.mp-x", f"torch_{NO_SUCH_PID + 1}_1_0"):
        put(tmp_path, name)
    files.note([os.getpid()])
    assert files.remove() == ()


def test_a_tensor_that_a_process_of_the_trial_made_is_removed_by_its_name(tmp_path: Path) -> None:
    files = watch(tmp_path)
    put(tmp_path, f"torch_{NO_SUCH_PID}_1_0")
    files.note([NO_SUCH_PID])
    assert files.remove() == (f"torch_{NO_SUCH_PID}_1_0",)


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    path = put(tmp_path, "psm_old")
    files = watch(tmp_path)
    used_by_us(files, path, put(tmp_path, "psm_new"))
    assert files.remove() == ("psm_new",)


def test_an_old_name_with_a_new_file_is_removed(tmp_path: Path) -> None:
    old = put(tmp_path, "psm_x")
    files = watch(tmp_path)
    put(tmp_path, "other")  # takes the next inode, so that the old one is not given out again
    old.rename(tmp_path / "kept")
    used_by_us(files, put(tmp_path, "psm_x"))
    assert files.remove() == ("psm_x",)


def test_what_others_may_open_stays(tmp_path: Path) -> None:
    files = watch(tmp_path)
    used_by_us(files, put(tmp_path, "psm_public", mode=0o666))
    (tmp_path / "psm_folder").mkdir(mode=0o700)
    (tmp_path / "psm_link").symlink_to("/etc/passwd")
    assert files.remove() == ()


def test_what_a_process_has_open_stays(tmp_path: Path) -> None:
    files = watch(tmp_path)
    with put(tmp_path, "psm_open").open("wb"):
        files.note([os.getpid()])
        assert files.remove() == ()
    assert files.remove() == ("psm_open",)


def test_what_a_process_has_mapped_stays(tmp_path: Path) -> None:
    files = watch(tmp_path)
    path = put(tmp_path, "psm_mapped")
    path.write_bytes(b"x" * 4096)
    descriptor = os.open(path, os.O_RDWR)
    mapped = mmap.mmap(descriptor, 4096)
    os.close(descriptor)
    files.note([os.getpid()])
    assert files.remove() == ()
    mapped.close()
    assert files.remove() == ("psm_mapped",)


def test_what_a_living_process_made_stays(tmp_path: Path) -> None:
    files = watch(tmp_path)
    put(tmp_path, f"torch_{os.getpid()}_123_0")
    files.note([os.getpid()])
    assert files.remove() == ()


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
    files = watch(tmp_path / "gone")
    files.note([os.getpid()])
    assert files.remove() == ()
