"""A tuner in odd surroundings runs its trials as elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autotune.model.outcome import Outcome
from autotune.sandbox.tree_removal import remove_tree
from tests.integration.runner.ground import EITHER, Ground, protection_of

REPOSITORY = Path(__file__).resolve().parents[3]


def run_tuner(ground: Ground, how: str, **changes: str) -> str:
    """What a tuner prints that a shell starts so; it runs one trial of writes.py."""
    command = [sys.executable, "-m", "tests.integration.runner.tuner_child", str(ground.workspace.folder)]
    environment = {**os.environ, **changes}
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {how}', "sh", *command, str(ground.user), ground.protection, "cold", "writes.py"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        check=False,
    )
    return (ended.stdout + ended.stderr).decode().strip()


@EITHER
@pytest.mark.parametrize("how", ["<&-", "</dev/null", "2>&-"])
def test_a_closed_stream_of_the_tuner_changes_nothing(ground: Ground, how: str) -> None:
    assert run_tuner(ground, how) == "ok"
    ground.check(f"tuner started with {how}", None)


@EITHER
@pytest.mark.parametrize(
    "changes",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONUTF8": "1", "LC_ALL": "C"},
    ],
    ids=["C", "C and no UTF-8", "C and UTF-8"],
)
def test_odd_names_work_in_the_c_locale(ground: Ground, changes: dict[str, str]) -> None:
    ground.user = ground.user.rename(ground.root / "ümlaut 漢")
    ground.cover()
    assert run_tuner(ground, "", **changes) == "ok"
    ground.check("C locale", None)


@pytest.mark.parametrize("name", ["layers", "landlock", "redirected"])
def test_processes_talk_to_each_other_under_a_temporary_folder_of_a_long_name(
    name: str, are_layers_permitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    protection = protection_of(name, are_layers_permitted=are_layers_permitted)
    monkeypatch.setenv("HOME", os.environ.get("HOME", "/"))
    root = Path(tempfile.mkdtemp(prefix="ground-" + "x" * 100)).resolve()
    ground = Ground(root, protection)
    (ground.user / "obeys.py").write_text(
        "import multiprocessing, pretend\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.Manager() as manager:\n"
        "        assert list(manager.list([1, 2])) == [1, 2]\n"
        "    pretend.report()\n"
    )
    ground.cover()
    try:
        result = ground.run("obeys.py")
        assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
        ground.check("a long TMPDIR", result)
    finally:
        remove_tree(root)
    links = [link.readlink() for link in Path(f"/tmp/autotune-{os.getuid()}").glob("*") if link.is_symlink()]
    assert not [target for target in links if target.is_relative_to(root)]
