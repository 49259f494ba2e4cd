"""A trial that takes all inodes of the temporary space: named, ended and removed; the next trial has room again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autotune.protocol.protection import Protection
from autotune.sandbox import landlock
from autotune.sandbox.layer_permission import is_permitted
from autotune.sandbox.tree_removal import remove_tree
from tests.sandbox import ordinary_user
from tests.sandbox.playing import REPOSITORY, ROOT, USER

FILLS, WRITES = "makes files until its file system has no inode left", "overwrites a checkpoint beside the project"
NUM_INODES = 1500
SMALL = f"""
set -e
mount -t tmpfs -o mode=1777,nr_inodes={NUM_INODES} none /var/tmp
exec "$@"
"""


@pytest.mark.parametrize("who", [ROOT, USER])
@pytest.mark.parametrize("mode", [mode.value for mode in Protection])
def test_a_trial_that_takes_all_inodes_changes_nothing_and_leaves_room_for_the_next(mode: str, who: str) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or ordinary_user.why_not():
        pytest.skip("a small file system is mounted by root alone")
    if mode == Protection.LANDLOCK and landlock.version() < 6:
        pytest.skip("this kernel has no Landlock, or one that withholds no signals")
    root = Path(tempfile.mkdtemp(prefix="inodes-", dir="/tmp"))
    root.chmod(0o755)
    (root / "user").mkdir()
    try:
        if mode == Protection.LAYERS and not is_permitted(root / "scratch"):
            pytest.skip("this system permits no layers")
        command = [sys.executable, "-m", "tests.sandbox.playground", mode, str(root / "user"), FILLS, WRITES]
        if who == USER:
            os.chown(root / "user", ordinary_user.UID, ordinary_user.GID)
            command = ordinary_user.command_as_user(command)
        played = subprocess.run(
            ["unshare", "--mount", "sh", "-c", SMALL, "sh", *command],
            cwd=REPOSITORY,
            env={**os.environ, "INODES": str(2 * NUM_INODES)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert played.returncode == 0, played.stderr[-2000:]
    finally:
        remove_tree(root)
    lines = [json.loads(line) for line in played.stdout.splitlines()]
    found = {line["name"]: line for line in lines if "name" in line}
    assert set(found) == {FILLS, WRITES}
    assert all(not each["changed"] and not each["num_left"] for each in found.values()), found
    assert found[FILLS]["outcome"] != "ok" and found[FILLS]["said"].strip(), "the file system was not full"
    assert found[WRITES]["outcome"] == "ok", found[WRITES]["said"]
