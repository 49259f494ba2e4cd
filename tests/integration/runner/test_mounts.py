"""What is mounted inside the user's folder is seen by trials, and is not changed by them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox.tree_removal import remove_tree
from tests.integration.runner.ground import SCRIPTS

REPOSITORY = Path(__file__).resolve().parents[3]
MOUNTS = """
set -e
mkdir -p "$1/project/data" "$1/home"
mount -t tmpfs none "$1/project/data"
mkdir "$1/project/data/nested"
mount -t tmpfs none "$1/project/data/nested"
printf kept > "$1/project/data/kept.txt"
printf nested > "$1/project/data/nested/kept.txt"
printf own > "$1/project/kept.txt"
printf one > "$1/other.txt"
touch "$1/project/one.txt"
mount --bind "$1/other.txt" "$1/project/one.txt"
shift
exec "$@"
"""


@pytest.fixture
def root(are_layers_permitted: bool) -> Iterator[Path]:
    if not are_layers_permitted or shutil.which("unshare") is None:
        pytest.skip("this system permits no overlay mounts")
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    shutil.copytree(SCRIPTS, root / "project")
    yield root
    remove_tree(root)


@pytest.mark.parametrize(
    "as_user", [[], ["unshare", "--user", "--map-user=1000", "--map-group=1000"]], ids=["as root", "as a user"]
)
def test_what_is_mounted_inside_is_seen_and_not_changed(root: Path, as_user: list[str]) -> None:
    in_namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTS, "sh", str(root)]
    child = [sys.executable, "-m", "tests.integration.runner.mount_child", str(root)]
    ended = subprocess.run(
        [*in_namespace, *as_user, *child], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (root / "other.txt").read_text() == "one"
