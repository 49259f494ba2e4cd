"""Hostile scripts under layers, as root and as an ordinary user: nothing outside is changed, and no process is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox.layer_permission import is_permitted
from tests.sandbox import ordinary_user
from tests.sandbox.playground import LAYERS, Found
from tests.sandbox.situations import GROUPS, SITUATIONS

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 900.0


def make_group_folder(folder: Path) -> None:
    """A folder of root's in which all is the group's, as project folders of clusters are."""
    folder.mkdir()
    for name in ("kept", "removed"):
        (folder / f"{name}.txt").write_text(name)
        (folder / f"{name}.txt").chmod(0o664)
        os.chown(folder / f"{name}.txt", 0, ordinary_user.FOREIGN_GID)
    os.chown(folder, 0, ordinary_user.FOREIGN_GID)
    folder.chmod(0o2775)


def played(who: str) -> dict[str, Found]:
    """What came of all situations in one process of that user."""
    root = Path(tempfile.mkdtemp(prefix="played-", dir="/var/tmp"))
    user = root / "user"
    user.mkdir()
    command = [sys.executable, "-m", "tests.sandbox.playground", LAYERS, str(user)]
    if who == "an ordinary user":
        root.chmod(0o755)
        os.chown(user, ordinary_user.UID, ordinary_user.GID)
        make_group_folder(user / "group")
        command = ordinary_user.command_as_user(command, groups=[ordinary_user.FOREIGN_GID])
    try:
        ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert ended.returncode == 0, ended.stderr
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        return {line["name"]: Found(**{**line, "changed": tuple(line["changed"])}) for line in lines}
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module", params=["whoever runs the tests", "an ordinary user"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Found]]:
    if not is_permitted(tmp_path_factory.mktemp("permitted")):
        pytest.skip("this system permits no layers")
    if request.param == "an ordinary user" and ordinary_user.why_not():
        pytest.skip(ordinary_user.why_not())
    yield played(request.param)


@pytest.mark.parametrize("name", [situation.name for situation in SITUATIONS])
def test_nothing_outside_is_changed_and_nothing_is_left(found: dict[str, Found], name: str) -> None:
    one = found[name]
    assert one.changed == ()
    assert one.num_left == 0
    assert one.outcome == "ok", one.said


@pytest.mark.parametrize("name", [situation.name for situation in GROUPS])
def test_an_ordinary_users_scripts_write_to_folders_of_a_group(found: dict[str, Found], name: str) -> None:
    if name not in found:
        pytest.skip("the user of this run owns all files")
    one = found[name]
    assert (one.changed, one.num_left) == ((), 0)
    assert one.outcome == "ok", one.said
