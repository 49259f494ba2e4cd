"""Folders of a worker within the user's state folder."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from autotune.errors import HostError
from autotune.service.worker.own_folders import own_folder


def test_a_folder_is_made_for_the_user_alone_or_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = own_folder("jobs", "3f2a9c")
    assert folder == tmp_path / "autotune" / "jobs" / "3f2a9c" and stat.S_IMODE(folder.stat().st_mode) == 0o700
    file = tmp_path / "autotune" / "file"
    file.write_text("")
    with pytest.raises(HostError, match=f"{file / 'below'} cannot be made: Not a directory"):
        own_folder("file", "below")
