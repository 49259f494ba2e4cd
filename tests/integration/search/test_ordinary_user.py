"""The search of a user who is not root: layers are laid folder by folder, around the file systems of others."""

from __future__ import annotations

import json
import os

import pytest

from tests.sandbox import ordinary_user

from .pretend import Project

LOOK = """
with open("/proc/self/mountinfo") as table:
    assert not [line for line in table if "/closed " in line and " overlay " in line], "a closed folder has a layer"
"""
needs_users = pytest.mark.skipif(bool(ordinary_user.why_not()), reason=ordinary_user.why_not() or "-")


@needs_users
def test_trials_begin_beside_a_file_system_deep_in_a_folder(project: Project) -> None:
    deep = project.root / "place" / "inner" / "disk"
    deep.mkdir(parents=True)
    script = project.folder / "train.py"
    script.write_text(LOOK + script.read_text())
    project.before = project.files()
    for path in (project.root, *project.root.rglob("*")):
        os.chown(path, ordinary_user.UID, ordinary_user.GID)
    (deep.parent / "closed").mkdir(mode=0o700)  # root's, like most of what others have in a temporary folder
    mounts = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{deep}" && exec "$@"', "sh"]
    prefix = [*mounts, *ordinary_user.command_as_user([])]
    code, output, talk = project.run(*project.search("train"), prefix=prefix)
    assert code == 0, talk
    assert json.loads(output)["trials"]["complete"] == 3
    project.check("none, as an ordinary user beside a deep mount", f"exit code {code}", {})
