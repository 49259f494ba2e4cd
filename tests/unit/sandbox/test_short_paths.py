"""Short names for folders, in which sockets can be made."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox.short_paths import MAX_BYTES, remove_dead_links, remove_short_path, short_path


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    folder = tmp_path / ("x" * 60) / ("y" * 60)
    folder.mkdir(parents=True)
    return folder


def test_a_short_folder_keeps_its_name(place: Path) -> None:
    assert short_path(place, [str(place)]) == place
    assert list(place.iterdir()) == []


def test_a_socket_can_be_made_in_a_folder_of_a_long_name(deep: Path, place: Path) -> None:
    link = short_path(deep, ["", str(place)])
    assert len(str(link)) <= MAX_BYTES and short_path(deep, [str(place)]) == link
    name = str(link / "pymp-xxxxxxxx" / "listener-xxxxxxxx")
    (deep / "pymp-xxxxxxxx").mkdir()
    with socket.socket(socket.AF_UNIX) as listener, pytest.raises(OSError, match="too long"):
        listener.bind(str(deep / "pymp-xxxxxxxx" / "listener-xxxxxxxx"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
    assert (deep / "pymp-xxxxxxxx" / "listener-xxxxxxxx").is_socket()
    assert link.parent.stat().st_mode & 0o777 == 0o700
    remove_short_path(deep, [str(place)])
    assert list(link.parent.iterdir()) == []


def test_a_place_that_others_may_write_to_is_not_used(deep: Path, place: Path) -> None:
    base = place / f"autotune-{os.getuid()}"
    base.mkdir()
    base.chmod(0o777)
    assert short_path(deep, [str(place)]) == deep


def test_links_to_what_is_gone_are_removed_and_others_stay(deep: Path, place: Path) -> None:
    link = short_path(deep, [str(place)])
    remove_dead_links([str(place)])
    assert link.is_symlink()
    deep.rmdir()
    remove_dead_links([str(place)])
    assert not link.is_symlink()
