"""Files of other users and groups: what an ordinary user's trials cannot write to is named before the first trial."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox.layer_permission import is_permitted
from autotune.sandbox.tree_removal import remove_tree
from tests.sandbox import ordinary_user
from tests.sandbox.playing import REPOSITORY, _make_group_folder

OPENS = """
import json, sys
from pathlib import Path
from autotune.protocol.protection import Protection, ProtectionWish
from autotune.sandbox import foreign_owners, workspace
foreign_owners.MAX_ENTRIES = int(sys.argv[2])
opened = workspace.Workspace.open(
    None, cwd=Path(sys.argv[1]), command=(sys.executable, "train.py"), wish=ProtectionWish(mode=Protection.LAYERS)
)
print(json.dumps(sorted(map(str, opened.out_of_reach))))
opened.remove()
"""


@pytest.fixture
def user() -> Iterator[Path]:
    if why := ordinary_user.why_not():
        pytest.skip(why)
    root = Path(tempfile.mkdtemp(prefix="reach-", dir="/var/tmp"))
    root.chmod(0o755)
    for name in ("home", "project", "tmp"):
        (root / name).mkdir()
        os.chown(root / name, ordinary_user.UID, ordinary_user.GID)
    _make_group_folder(root / "group")
    try:
        if not is_permitted(root / "scratch"):
            pytest.skip("this system permits no layers")
        yield root
    finally:
        remove_tree(root)


def out_of_reach(user: Path, *, most_entries: int = 20_000) -> list[str]:
    words = [sys.executable, "-c", OPENS, str(user / "project"), str(most_entries)]
    command = ordinary_user.command_as_user(words, groups=[ordinary_user.FOREIGN_GID])
    environment = {**os.environ, "HOME": str(user / "home"), "TMPDIR": str(user / "tmp")}
    environment["GROUP_DIR"] = str(user / "group")
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_a_folder_of_the_users_group_is_within_reach_by_copies(user: Path) -> None:
    assert out_of_reach(user) == []


def test_a_groups_file_too_large_to_copy_is_named(user: Path) -> None:
    large = user / "group" / "large.bin"
    with large.open("wb") as file:
        file.truncate(65 << 20)
    large.chmod(0o664)
    os.chown(large, 0, ordinary_user.FOREIGN_GID)
    assert out_of_reach(user) == [str(large)]


def test_the_first_folder_past_the_most_entries_is_named(user: Path) -> None:
    assert str(user / "group") in out_of_reach(user, most_entries=0)
