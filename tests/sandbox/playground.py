"""A user's folder with siblings, links and outputs elsewhere, in which a hostile script runs; and what must hold after.

Run as a program, it runs situations in one process of the user who starts it, and prints one line of JSON for each:
`python -m tests.sandbox.playground MODE FOLDER NAME ...`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.host import DeviceInfo
from autotune.measure.window_stopping import WindowRule
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.protection import Protection
from autotune.runner.cold_runner import ColdRunner
from autotune.sandbox.covered_folders import covered_folders
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.units import GIB
from tests.jobs import job_of
from tests.sandbox.situations import GROUPS, SITUATIONS, Situation
from tests.unit.facts import script_facts

PRETEND = Path(__file__).parents[1] / "integration" / "runner" / "scripts" / "pretend.py"
CPU = DeviceInfo(kind="cpu", name="cpu", total_bytes=GIB, free_bytes=GIB)
LAYERS, REDIRECTED = "layers", "redirected"
MARK = b"by-a-trial"


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one situation."""

    name: str
    outcome: str
    said: str
    """Reason and last output."""
    changed: tuple[str, ...]
    """Paths outside of the layers that are not as they were."""
    num_left: int
    """Processes that are still there."""


def make_user(root: Path) -> Path:
    """A folder of the user's, with what scripts are after; its project is where they run."""
    for name in ("project/data/deep", "checkpoints", "runs/1", "shared", "home", "out"):
        (root / name).mkdir(parents=True)
    (root / "checkpoints" / "best.pt").write_text("best")
    (root / "runs" / "1" / "log.txt").write_text("log")
    (root / "out" / "best.pt").write_text("best")
    (root / "shared" / "linked.bin").write_text("linked")
    os.link(root / "shared" / "linked.bin", root / "home" / "linked.bin")
    (root / "shared" / "link").symlink_to("../checkpoints")
    (root / "project" / "data" / "deep" / "link").symlink_to("../../../checkpoints")
    (root / "project" / "config.json").write_text(json.dumps({"out": str(root / "out")}))
    shutil.copy(PRETEND, root / "project" / "pretend.py")
    return root / "project"


def digest(*roots: Path) -> dict[str, Any]:
    """Kind, rights, size, time and content of everything below the folders, by path."""
    seen: dict[str, Any] = {}
    for root in roots:
        for place, folders, files in os.walk(root):
            for name in (".", *folders, *files):
                path = Path(place, name)
                status = path.lstat()
                content = path.readlink() if path.is_symlink() else ""
                if path.is_file() and not path.is_symlink():
                    content = hashlib.sha256(path.read_bytes()).hexdigest()
                seen[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_nlink, str(content))
    return seen


class Playground:
    """One user with one study under one mode of protection.

    Args:
        root: An empty folder, which is the user's.
        mode: `layers` or `redirected`.
    """

    def __init__(self, root: Path, mode: str) -> None:
        self.root, self._mode = root, mode
        self._project = make_user(root)
        self._base = Path(tempfile.mkdtemp(prefix="sandbox-", dir="/var/tmp")).resolve()
        self._in_tmp = Path(tempfile.mkdtemp(prefix="sandbox-input-", dir="/tmp"))
        self._in_memory = Path("/dev/shm", f"sandbox-{os.getpid()}")
        os.environ.update(
            HOME=str(root / "home"),
            TMPDIR=str(self._base),
            OUTPUT_DIR=str(root / "out"),
            IN_TMP=str(self._in_tmp / "input"),
            IN_MEMORY=str(self._in_memory),
        )
        if (root / "group").is_dir():
            os.environ["GROUP_DIR"] = str(root / "group")
        tempfile.tempdir = None
        (self._in_tmp / "input").write_text("input")
        self._in_memory.write_text("shared")
        if mode == LAYERS:
            self.workspace = Workspace.open(None, cwd=self._project, command=(sys.executable, "hostile.py"))
            assert self.workspace.has_layers, "this system permits no layers"
        else:
            folders = covered_folders(self._project, (sys.executable, "hostile.py"))
            self.workspace = Workspace(self._base / "space", folders, protection=Protection.NONE)
            self.workspace.folder.mkdir()
        self.runner = ColdRunner(self.workspace, CPU)

    def close(self) -> None:
        """Removes what is not in the user's folder."""
        self.workspace.remove()
        shutil.rmtree(self._base, ignore_errors=True)
        shutil.rmtree(self._in_tmp, ignore_errors=True)
        self._in_memory.unlink(missing_ok=True)

    def play(self, situation: Situation, mode: Mode = Mode.TRIAL) -> Found:
        """Runs one script to its end, and looks at all that is outside of its layers."""
        (self._project / "hostile.py").write_text(situation.script)
        before = self._outside()
        handle = self.runner.start(self._job(mode))
        result = handle.probe_result() if mode is Mode.PROBE else handle.result()
        after = self._outside()
        changed = tuple(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))
        outcome = "ok" if mode is Mode.PROBE else result.outcome.value
        said = f"{result.reason} {result.log_tail}".strip()
        return Found(situation.name, outcome, said, changed, self._num_left())

    def _outside(self) -> dict[str, Any]:
        found = digest(self.root, self._in_tmp)
        found["/dev/shm"] = sorted(filter(self._is_own_memory, os.listdir("/dev/shm")))
        found["content"] = self._in_memory.read_text()
        found["/tmp"] = sorted(path.name for path in Path("/tmp").iterdir() if "by-a-trial" in path.name)
        found["segments"] = [line for line in _segments() if "24301" in line.split()]  # 0x5EED
        found["devices"] = Path("/dev/by-a-trial").exists()
        return found

    def _is_own_memory(self, name: str) -> bool:
        """Whether a file in shared memory is of this playground: others may run beside it."""
        return name == self._in_memory.name or name.startswith(f"{self._in_memory.name}-")

    def _job(self, mode: Mode) -> TrialJob:
        is_probe = mode is Mode.PROBE
        return job_of(
            mode=mode,
            command=(sys.executable, "hostile.py", str(os.getpid()), str(self.root)),
            cwd=str(self._project),
            settings=None if is_probe else Settings(batch_size=64),
            script_settings=None if is_probe else Settings(batch_size=64),
            facts=None if is_probe else script_facts(),
            cap_bytes=4 * GIB,
            window=WindowRule(half_width_ratio=0.05),
            start_limit_s=60.0,
            total_limit_s=90.0,
        )

    def _num_left(self) -> int:
        """Processes of the trial that are there after two seconds."""
        deadline = time.monotonic() + 2.0
        while (left := sum(map(self._is_of_trial, os.listdir("/proc")))) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _is_of_trial(self, name: str) -> bool:
        if not name.isdigit():
            return False
        try:
            mark = b"AUTOTUNE_TRIAL=" + os.fsencode(self.workspace.folder)
            process = Path("/proc", name)
            return mark in (process / "environ").read_bytes() or MARK in (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False


def _segments() -> list[str]:
    try:
        return Path("/proc/sysvipc/shm").read_text().splitlines()
    except OSError:
        return []


def main() -> None:
    """Runs the situations that are named, all of them without names."""
    mode, folder, *names = sys.argv[1:]
    playground = Playground(Path(folder), mode)
    try:
        for situation in (*SITUATIONS, *(GROUPS if (playground.root / "group").is_dir() else ())):
            if not names or situation.name in names:
                sys.stdout.write(json.dumps(asdict(playground.play(situation))) + "\n")
                sys.stdout.flush()
    finally:
        playground.close()


if __name__ == "__main__":
    main()
