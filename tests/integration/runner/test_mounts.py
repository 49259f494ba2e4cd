"""What is mounted inside the user's folder is seen by trials, and is not changed by them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.protocol.protection import Protection
from autotune.sandbox import landlock, overlay
from autotune.sandbox.tree_removal import remove_tree
from tests.integration.runner.ground import SCRIPTS

AS_USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
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


def crowd(folder: Path) -> None:
    """Puts more entries into a folder than are shown one by one."""
    for number in range(overlay.MAX_ENTRIES + 1):
        (folder / f"entry-{number}").touch()


def run_child(root: Path, as_user: list[str], protection: Protection, *writable: Path) -> None:
    in_namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTS, "sh", str(root)]
    child = [sys.executable, "-m", "tests.integration.runner.mount_child", str(root), protection, *map(str, writable)]
    ended = subprocess.run(
        [*in_namespace, *as_user, *child], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (root / "other.txt").read_text() == "one"


@pytest.mark.parametrize("as_user", [[], AS_USER], ids=["as root", "as a user"])
def test_what_is_mounted_inside_is_seen_and_not_changed(root: Path, as_user: list[str]) -> None:
    run_child(root, as_user, Protection.LAYERS)


@pytest.mark.parametrize("as_user", [[], AS_USER], ids=["as root", "as a user"])
@pytest.mark.parametrize("writable", ["project", "."], ids=["the project", "a folder around the workspace"])
def test_what_is_mounted_inside_a_writable_folder_is_written_for_real(
    root: Path, as_user: list[str], writable: str
) -> None:
    run_child(root, as_user, Protection.LAYERS, root / writable)


def test_a_users_project_is_writable_in_a_crowded_folder(root: Path) -> None:
    crowd(root)
    run_child(root, AS_USER, Protection.LAYERS)


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
def test_a_users_crowded_project_with_a_mount_inside_falls_back_to_landlock(root: Path) -> None:
    crowd(root / "project")
    run_child(root, AS_USER, Protection.LANDLOCK)


AUTOMOUNTER = """
set -e
mount -t tmpfs none "$1/automounted"
mkdir "$1/automounted/data"
mount -o remount,ro "$1/automounted"
shift
exec "$@"
"""
"""A read-only place for mounts, as an automounter has."""


def test_a_mount_of_an_automounter_during_a_trial_is_seen(root: Path) -> None:
    (root / "automounted").mkdir()
    in_namespace = ["unshare", "--mount", "--propagation", "shared", "sh", "-c", AUTOMOUNTER, "sh", str(root)]
    if os.geteuid() != 0:
        in_namespace[1:1] = ["--user", "--map-root-user"]
    child = [sys.executable, "-m", "tests.integration.runner.late_mount", str(root)]
    ended = subprocess.run([*in_namespace, *child], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "late"), ended.stderr
