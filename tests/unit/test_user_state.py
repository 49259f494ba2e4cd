"""The user's own state folder."""

import os
import stat
from pathlib import Path

import pytest

from autotune.user_state import read_state, signed, state_folder, write_state


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "autotune"


def test_what_is_written_is_read_again_by_its_name_alone(state):
    assert read_state("kind", "a/../b") == {}
    assert write_state("kind", "a/../b", {"x": [1, "é"]})
    assert read_state("kind", "a/../b") == {"x": [1, "é"]}
    assert read_state("other", "a/../b") == {}


def test_only_the_user_reads_it(state):
    write_state("kind", "name", {"x": 1})
    modes = {stat.S_IMODE(path.stat().st_mode) for path in state.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_what_others_may_have_written_is_not_believed(state):
    write_state("kind", "name", {"x": 1})
    for path in (state / "kind").iterdir():
        path.chmod(0o666)
    assert read_state("kind", "name") == {}


def test_a_link_or_a_pipe_in_place_of_a_file_is_not_followed(state, tmp_path):
    write_state("kind", "name", {"x": 1})
    (path,) = (state / "kind").iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert read_state("kind", "name") == {}
    path.unlink()
    os.mkfifo(path)
    assert read_state("kind", "name") == {}


def test_digests_are_of_this_users_key(state, tmp_path, monkeypatch):
    mine = signed("text")
    assert mine == signed("text") != signed("other")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    assert signed("text") not in (None, mine)


def test_without_a_place_nothing_is_kept_and_nothing_fails(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert signed("text") is None
    assert write_state("kind", "name", {}) is False
    assert read_state("kind", "name") == {}


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/ada"}, Path("/state/autotune")),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/ada"}, Path("/home/ada/.local/state/autotune")),
        ({"HOME": "/home/ada"}, Path("/home/ada/.local/state/autotune")),
    ],
)
def test_the_folder_is_where_the_standard_has_it(environ, folder):
    assert state_folder(environ) == folder
