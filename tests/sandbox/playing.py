"""All situations in one process of one user, under one mode of protection."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autotune.sandbox.tree_removal import remove_tree
from tests.sandbox import ordinary_user
from tests.sandbox.playground import ISOLATED, Found

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT, USER = "root", "an ordinary user"
LIMIT_S = 3000.0
ALONE = """
echo 30000 > /proc/sys/kernel/ns_last_pid
"$@"
"""
"""Starts a command with a high process id: no process in a namespace of a trial has the same."""


def users() -> tuple[str, ...]:
    """Users that this process can play: root plays both, and an ordinary user plays one."""
    if os.geteuid() != 0:
        return (USER,)
    return (ROOT,) if ordinary_user.why_not() else (ROOT, USER)


def play(
    mode: str, who: str, names: Sequence[str] = (), tell: Callable[[Found], None] = lambda one: None
) -> list[Found]:
    """What came of the situations, for one user under one mode.

    Args:
        mode: A value of `Protection`.
        who: `ROOT` or `USER`.
        names: Of situations; empty for all with a promise.
        tell: Called with each result.

    Raises:
        RuntimeError: The process of the situations did not end well; names the situation at work.
    """
    root = Path(tempfile.mkdtemp(prefix="played-", dir="/var/tmp"))
    user = root / "user"
    user.mkdir()
    command = [sys.executable, "-m", "tests.sandbox.playground", mode, str(user), *names]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_")}
    if os.geteuid() == 0:
        root.chmod(0o755)
        if who == USER:
            os.chown(user, ordinary_user.UID, ordinary_user.GID)
            _make_group_folder(user / "group")
            command = ordinary_user.command_as_user(command, groups=[ordinary_user.FOREIGN_GID])
        alone = [
            "unshare",
            "--mount",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            ALONE,
            "sh",
        ]
        if shutil.which("unshare"):
            command, environment[ISOLATED] = [*alone, *command], "1"
    try:
        return _read(command, environment, tell)
    finally:
        remove_tree(root)


def found_of(values: dict[str, Any]) -> Found:
    """A result from the values of its JSON object."""
    return Found(**{**values, "changed": tuple(values["changed"]), "unnamed": tuple(values["unnamed"])})


def _read(command: Sequence[str], environment: dict[str, str], tell: Callable[[Found], None]) -> list[Found]:
    found: list[Found] = []
    at_work = "the start"
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as playground:
            assert playground.stdout is not None
            for line in playground.stdout:
                values = json.loads(line)
                if "begins" in values:
                    at_work = values["begins"]
                    continue
                found.append(found_of(values))
                tell(found[-1])
        if playground.returncode != 0:
            errors.seek(0)
            raise RuntimeError(f"ended with {playground.returncode} at: {at_work}\n{errors.read()[-2000:]}")
    return found


def _make_group_folder(folder: Path) -> None:
    """Makes a folder of root's with a group for all new files, like project folders of clusters."""
    folder.mkdir()
    for name in ("kept", "removed"):
        (folder / f"{name}.txt").write_text(name)
        (folder / f"{name}.txt").chmod(0o664)
        os.chown(folder / f"{name}.txt", 0, ordinary_user.FOREIGN_GID)
    os.chown(folder, 0, ordinary_user.FOREIGN_GID)
    folder.chmod(0o2775)
