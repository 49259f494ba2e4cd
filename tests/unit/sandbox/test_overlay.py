"""What is mounted, what stays as it is, and what of earlier layers is handed on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.runner.refused_writes import refused_by_layers
from autotune.sandbox import overlay
from autotune.sandbox.kept_whole import large_copies, large_files, libraries
from autotune.sandbox.layer_folders import PATH, UPPER, contents, layer_name
from autotune.sandbox.mounts import Mount, in_sight, mounted
from autotune.sandbox.special_mounts import STARTERS

TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:30 / /mnt/a\\040folder rw,nosuid shared:3 master:1 - xfs /dev/b ro
41 27 0:31 / /mnt/read ro - ext4 /dev/c rw
"""


def test_the_table_of_mounts_is_read_with_every_character_in_a_path(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(TABLE)
    assert mounted(tmp_path / "mountinfo") == [
        Mount(27, "/", "ext4", is_writable=True, source="/dev/vda"),
        Mount(40, "/mnt/a folder", "xfs", is_writable=False, source="/dev/b"),
        Mount(41, "/mnt/read", "ext4", is_writable=False, source="/dev/c"),
        Mount(22, "/proc", "proc", is_writable=True, source="proc"),
    ]
    assert [mount.is_special for mount in mounted(tmp_path / "mountinfo")] == [False, False, False, True]
    assert mounted(tmp_path / "nowhere") == []


def test_a_mount_below_another_is_out_of_sight() -> None:
    there = mounted()
    root = next(mount for mount in in_sight(there) if mount.point == "/")
    hidden = root._replace(number=root.number + 100_000)
    assert hidden not in in_sight([*there, hidden])


@pytest.mark.parametrize(
    "path",
    ["/run/docker.sock", "/run/systemd/private", "/run/user/1000/bus", "/run/dbus/system_bus_socket", "/run/cron.sock"],
)
def test_sockets_behind_which_programs_are_started_lead_nowhere(path: str) -> None:
    assert STARTERS.search(path)


@pytest.mark.parametrize(
    "path",
    ["/var/lib/sss/pipes/private/sudo", "/run/nscd/socket", "/data/busy/socket", "/run/nvidia-persistenced/socket"],
)
def test_other_sockets_stay(path: str) -> None:
    assert STARTERS.search(path) is None


def test_a_link_of_the_probe_takes_the_place_of_a_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.symlink_to("elsewhere")
    target.write_text("the user's")
    overlay._clear(source, target)
    overlay._copy_file(source, target)
    assert os.readlink(target) == "elsewhere"


def test_a_layer_knows_the_path_of_what_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / layer_name("/data")
    (folder / UPPER).mkdir(parents=True)
    (folder / PATH).write_text("/data")
    (tmp_path / "other").mkdir()
    assert list(contents(tmp_path)) == [(folder / UPPER, "/data")]


def test_libraries_of_another_interpreter_are_among_those_that_stay(tmp_path: Path) -> None:
    (tmp_path / "env" / "lib").mkdir(parents=True)
    (tmp_path / "env" / "bin").mkdir()
    (tmp_path / "env" / "bin" / "python").touch(mode=0o755)
    assert str(tmp_path / "env" / "lib") in libraries(str(tmp_path / "env" / "bin" / "python"))


def test_large_files_are_found_and_sparse_ones_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.sandbox.redirection.real_places.LARGE_BYTES", 1 << 20)
    monkeypatch.setattr("autotune.sandbox.kept_whole._shares_blocks", lambda path, scratch: path.name == "cloned")
    for name in ("large", "cloned"):
        (tmp_path / name).write_bytes(bytes(range(256)) * (1 << 12))
    (tmp_path / "small").write_bytes(b"x")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    assert large_files([tmp_path], tmp_path) == (str(tmp_path / "large"),)


def test_a_folder_of_many_files_leaves_room_for_others_in_the_search_for_large_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.sandbox.redirection.real_places.LARGE_BYTES", 1 << 16)
    monkeypatch.setattr("autotune.sandbox.kept_whole._shares_blocks", lambda path, scratch: False)
    monkeypatch.setattr("autotune.sandbox.kept_whole.MAX_ENTRIES", 20)
    for number in range(30):
        (tmp_path / "many" / "deep" / str(number)).mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_bytes(bytes(range(256)) * 512)
    assert large_files([tmp_path / "many", tmp_path / "data"], tmp_path) == (str(tmp_path / "data" / "large"),)


def test_the_users_large_files_that_a_probe_copied_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.sandbox.redirection.real_places.LARGE_BYTES", 1 << 16)
    user, upper = tmp_path / "user", tmp_path / "layer" / layer_name(str(tmp_path / "user")) / UPPER
    for folder in (user, upper):
        folder.mkdir(parents=True)
        (folder / "updated").write_bytes(bytes(range(256)) * 512)
        (folder / "small").write_bytes(b"x")
    (upper / "made").write_bytes(bytes(range(256)) * 512)
    (upper.parent / PATH).write_text(str(user))
    assert large_copies(tmp_path / "layer") == (user / "updated",)


def test_advice_names_the_place_that_was_refused() -> None:
    printed = "Traceback ...\nOSError: [Errno 30] Read-only file system: '/data/train.mdb'\n"
    assert refused_by_layers(printed) == (
        "/data/train.mdb is read-only in trials; --writable /data/train.mdb lets trials write there for real."
    )
    assert refused_by_layers("OSError: [Errno 28] No space left on device: '/data'") == ""
