"""A folder compared before and after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.sandbox.changed_files import MAX_NAMED, Scan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("a", "b", "sub/c"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_nothing_changed_is_nothing_named(folder: Path) -> None:
    scan = Scan(folder)
    (folder / "a").read_text()
    assert scan.changes() == ()


def test_new_changed_and_removed_are_named(folder: Path) -> None:
    scan = Scan(folder)
    (folder / "sub" / "new").touch()
    (folder / "folder").mkdir()
    (folder / "a").write_text("longer")
    (folder / "b").unlink()
    assert scan.changes() == ("a", "b", "folder", "sub/new")


def test_the_same_size_at_another_time_is_a_change(folder: Path) -> None:
    scan = Scan(folder)
    before = (folder / "a").stat()
    (folder / "a").write_text("z")
    os.utime(folder / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert scan.changes() == ("a",)


def test_links_are_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (folder / "link").symlink_to(other)
    scan = Scan(folder)
    (other / "new").touch()
    assert scan.changes() == ()


def test_a_folder_of_too_many_entries_is_compared_as_far_as_it_was_seen(folder: Path) -> None:
    scan = Scan(folder, max_entries=2)
    (folder / "a").write_text("longer")
    (folder / "sub" / "new").touch()
    assert scan.changes() == ("a", "(only 2 entries were compared)")


def test_a_folder_of_too_many_entries_in_which_nothing_changed_is_no_warning(folder: Path) -> None:
    assert Scan(folder, max_entries=2).changes() == ()


def test_what_was_removed_is_named_in_a_folder_of_too_many_entries_too(folder: Path) -> None:
    scan = Scan(folder, max_entries=2)
    (folder / "a").unlink()
    assert scan.changes() == ("a", "(only 2 entries were compared)")


def test_new_entries_of_a_folder_seen_whole_are_named_though_others_were_not_seen(folder: Path) -> None:
    for number in range(5):
        (folder / "sub" / str(number)).touch()
    scan = Scan(folder, max_entries=5)
    (folder / "new").touch()
    assert scan.changes() == ("new", "(only 5 entries were compared)")


def test_a_new_folder_and_a_removed_folder_are_named_without_their_entries(folder: Path) -> None:
    scan = Scan(folder)
    (folder / "made" / "deep").mkdir(parents=True)
    (folder / "made" / "deep" / "file").touch()
    (folder / "sub" / "c").unlink()
    (folder / "sub").rmdir()
    assert scan.changes() == ("made", "sub")


def test_earlier_files_in_shared_memory_are_named_and_those_of_libraries_and_new_ones_are_not(folder: Path) -> None:
    memory = folder / "memory"
    memory.mkdir()
    for name in ("data", "removed", "torch_12_34", "psm_1"):
        (memory / name).write_text("kept")
    scan = Scan(folder / "sub", memory=memory)
    (memory / "data").write_text("lost")
    (memory / "removed").unlink()
    (memory / "torch_12_34").unlink()
    (memory / "psm_1").write_text("x")
    (memory / "new").touch()
    assert scan.changes() == (str(memory / "data"), str(memory / "removed"))


def test_the_skipped_folder_is_not_compared(folder: Path) -> None:
    (folder / "ours").mkdir()
    scan = Scan(folder, skipped=folder / "ours")
    (folder / "ours" / "new").touch()
    (folder / "other").touch()
    assert scan.changes() == ("other",)


def test_metadata_alone_are_named_where_nothing_else_can_be_changed(folder: Path) -> None:
    scan = Scan(folder, metadata_alone=True)
    (folder / "a").chmod(0)
    (folder / "b").unlink()
    (folder / "sub" / "c").write_text("another program wrote this")
    assert scan.changes() == ("a",)


def test_folders_elsewhere_are_named_by_their_whole_path(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "kept").touch()
    home = folder / "home"
    (home / "sub").mkdir(parents=True)
    (home / "sub" / "c").touch()
    scan = Scan(home, (other, home / "sub", folder))
    (other / "kept").unlink()
    (home / "sub" / "c").chmod(0)
    assert scan.changes() == ("sub/c", str(other / "kept"))


def test_changes_in_the_working_directory_are_named_before_changes_of_other_programs_elsewhere(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    scan = Scan(folder, (other,))
    for number in range(MAX_NAMED):
        (other / f"{number:03}").touch()
    (folder / "b").unlink()
    changes = scan.changes()
    assert changes[0] == "b"
    assert changes[-1] == "(and 1 more)"


def test_a_long_list_is_cut(folder: Path) -> None:
    scan = Scan(folder)
    for number in range(MAX_NAMED + 7):
        (folder / f"{number:03}").touch()
    changes = scan.changes()
    assert len(changes) == MAX_NAMED + 1
    assert changes[-1] == "(and 7 more)"


def test_files_that_we_have_open_ourselves_are_not_meant(folder: Path) -> None:
    with (folder / "study.db").open("w") as database:
        scan = Scan(folder)
        database.write("x")
        database.flush()
        (folder / "study.db-journal").touch()
        (folder / "study.db2").touch()
        assert scan.changes() == ("study.db2",)


def test_a_folder_that_is_gone_is_all_removed(folder: Path, tmp_path: Path) -> None:
    scan = Scan(folder / "sub")
    (folder / "sub" / "c").unlink()
    (folder / "sub").rmdir()
    assert scan.changes() == ("c",)
