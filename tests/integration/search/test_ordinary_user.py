"""The search of a user who is not root: layers are laid folder by folder, around the file systems of others."""

from __future__ import annotations

import json
import os

import pytest

from tests.sandbox import ordinary_user

from .pretend import Project

needs_users = pytest.mark.skipif(bool(ordinary_user.why_not()), reason=ordinary_user.why_not() or "-")


@needs_users
def test_trials_begin_beside_a_file_system_deep_in_a_folder(project: Project) -> None:
    deep = project.root / "place" / "inner" / "disk"
    deep.mkdir(parents=True)
    for path in (project.root, *project.root.rglob("*")):
        os.chown(path, ordinary_user.UID, ordinary_user.GID)
    mounts = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{deep}" && exec "$@"', "sh"]
    prefix = [*mounts, *ordinary_user.command_as_user([])]
    code, output, talk = project.run(*project.search("train"), prefix=prefix)
    assert code == 0, talk
    assert json.loads(output)["trials"]["complete"] == 3
    project.check("none, as an ordinary user beside a deep mount", f"exit code {code}", {})
