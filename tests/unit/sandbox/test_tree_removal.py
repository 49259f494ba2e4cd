"""Removal of folders that scripts made hard to remove."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import pytest

from autotune.sandbox.tree_removal import remove_tree

GET_FLAGS, SET_FLAGS, IMMUTABLE, APPEND_ONLY, NEITHER = 0x80086601, 0x40086602, 0x10, 0x20, 0


def set_flags(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        others = int.from_bytes(fcntl.ioctl(descriptor, GET_FLAGS, bytes(8)), "little") & ~(IMMUTABLE | APPEND_ONLY)
        fcntl.ioctl(descriptor, SET_FLAGS, (others | flags).to_bytes(8, "little"))
    except OSError:
        pytest.skip("this file system or this user has no immutable files")
    finally:
        os.close(descriptor)


def test_folders_a_thousand_levels_deep_are_removed(tmp_path: Path) -> None:
    here = Path.cwd()
    folder = tmp_path / "deep"
    folder.mkdir()
    os.chdir(folder)
    try:
        for _ in range(1000):
            os.mkdir("deeper")
            os.chdir("deeper")
        Path("bottom").write_text("x")
    finally:
        os.chdir(here)
    remove_tree(folder)
    assert not folder.exists()


def test_closed_folders_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("x")
    for path in (folder / "a" / "b", folder / "a", folder):
        path.chmod(0)
    remove_tree(folder)
    assert not folder.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "to_folder").symlink_to(kept)
    (folder / "to_file").symlink_to(kept / "file")
    remove_tree(folder)
    assert not folder.exists()
    (tmp_path / "link").symlink_to(kept)
    remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (kept / "file").read_text() == "kept"
    assert kept.stat().st_mode & 0o777 == 0o755


def test_files_pipes_and_nothing_are_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "pipe", "nothing"):
        remove_tree(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [IMMUTABLE, APPEND_ONLY])
def test_immutable_files_and_folders_are_removed(tmp_path: Path, flags: int) -> None:
    folder = tmp_path / "fixed"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("x")
    try:
        for path in (folder / "inner" / "file", folder / "inner"):
            set_flags(path, flags)
        remove_tree(folder)
        assert not folder.exists()
    finally:
        for path in (folder / "inner", folder / "inner" / "file"):
            with suppress(OSError):
                set_flags(path, NEITHER)
