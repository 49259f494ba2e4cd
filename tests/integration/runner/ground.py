"""A user's folder and home, a workspace over them, and what must hold after every run whatever the script did."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.host import SHARED_MEMORY
from autotune.measure.window_stopping import WindowRule
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.protection import Protection
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import choose_device
from autotune.sandbox.kept_whole import libraries
from autotune.sandbox.layer_permission import Permission, permission
from autotune.sandbox.protection_choice import is_landlock_permitted
from autotune.sandbox.workspace import Workspace, covered_folders
from autotune.settings import Settings
from autotune.units import MIB
from tests.benchmarks.startup.growth import MEMORY, look
from tests.jobs import job_of
from tests.unit.facts import script_facts

OF_PLAYGROUNDS = f"{SHARED_MEMORY}/sandbox-"
SCRIPTS = Path(__file__).parent / "scripts"
GENEROUS_BYTES = 4096 * MIB
EITHER = pytest.mark.parametrize("ground", ["either"], indirect=True)
"""For tests of what does not depend on how the user's files are protected."""
REDIRECTED = pytest.mark.parametrize("ground", ["layers", "landlock", "redirected"], indirect=True, scope="module")
"""For tests on a ground that many share, of what has to hold under both protections."""
SLOWLY_REDIRECTED = pytest.mark.parametrize(
    "ground",
    ["layers", *(pytest.param(name, marks=pytest.mark.slow) for name in ("landlock", "redirected"))],
    indirect=True,
    scope="module",
)
"""The same for tests that take their time."""
TABLE: list[tuple[str, str, int, int, int]] = []
"""Rows of (fault, outcome, processes left, files changed, finished trials lost), printed at the end of the session."""


def protection_of(name: str, *, are_layers_permitted: bool) -> Protection:
    """The protection that a parameter names, `either` being the best that this system permits; skips where it cannot.

    `redirected` leaves all to redirection.
    """
    permitted = {Protection.LAYERS: are_layers_permitted, Protection.LANDLOCK: is_landlock_permitted()}
    if name == "either":
        return next((protection for protection, is_permitted in permitted.items() if is_permitted), Protection.NONE)
    protection = Protection.NONE if name == "redirected" else Protection(name)
    if not permitted.get(protection, True):
        pytest.skip(f"this system does not permit {protection}")
    return protection


def seed_user_files(root: Path) -> None:
    """What a user has: files that scripts will change, append to, rename and remove."""
    (root / "sub" / "deep").mkdir(parents=True)
    for name in ("kept.txt", "log.txt", "moved.txt", "removed.txt"):
        (root / name).write_text(f"{name.removesuffix('.txt')}\n")
    (root / "sub" / "deep" / "old.txt").write_text("old\n")
    (root / "sub" / "link.txt").symlink_to("deep/old.txt")


def digest(*roots: Path) -> dict[str, tuple[Any, ...]]:
    """Everything that a change would show in: names, kinds, modes, sizes, times, contents."""
    seen: dict[str, tuple[Any, ...]] = {}
    for root in roots:
        for place, folders, files in os.walk(root):
            for name in [".", *folders, *files]:
                path = Path(place, name)
                status = path.lstat()
                content = ""
                if path.is_symlink():
                    content = str(path.readlink())
                elif path.is_file():
                    content = hashlib.sha256(path.read_bytes()).hexdigest()
                seen[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_uid, content)
    return seen


def escaped_of(result: TrialResult) -> tuple[str, ...]:
    """The changes that a result names, without those of playgrounds in other processes of the same test session.

    Playgrounds put files into the shared memory of the whole machine, at any time.
    """
    return tuple(path for path in result.escaped if not path.startswith(OF_PLAYGROUNDS))


def processes_of(folder: Path) -> list[int]:
    """Living processes that were started for a trial below `folder`, wherever they are in the tree."""
    found = []
    mark = b"AUTOTUNE_TRIAL=" + os.fsencode(folder)
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and mark in Path("/proc", entry, "environ").read_bytes():
                found.append(int(entry))
        except OSError:
            continue
    return found


def make_job(user: Path, *arguments: str, **changes: Any) -> TrialJob:
    """A trial of a script in that folder, under settings that it does not look at."""
    values: dict[str, Any] = {
        "mode": Mode.TRIAL,
        "command": (sys.executable, *arguments),
        "cwd": str(user),
        "settings": Settings(batch_size=64),
        "script_settings": Settings(batch_size=64),
        "facts": script_facts(),
        "cap_bytes": GENEROUS_BYTES,
        "window": WindowRule(half_width_ratio=0.05),
        "start_limit_s": 60.0,
        "total_limit_s": 90.0,
    }
    return job_of(**{**values, **changes})


def left_in_shared_memory() -> set[str]:
    """What `leaves.py` makes there."""
    return {path.name for path in SHARED_MEMORY.glob("*_left_by_a_trial")}


def growth(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """What is not as it was, before and after; others have their entries in shared memory, too."""
    is_steady = after[MEMORY] < 1.02 * before[MEMORY]
    unlike = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    ignored = {"entries of /dev/shm", *([MEMORY] if is_steady else [])}
    return {name: pair for name, pair in unlike.items() if name not in ignored}


@dataclass
class Ground:
    """One user, one study."""

    root: Path
    protection: Protection
    permitted: Permission = field(init=False, default=Permission(is_given=False))
    user: Path = field(init=False)
    home: Path = field(init=False)
    workspace: Workspace = field(init=False)
    runner: ColdRunner = field(init=False)
    before: dict[str, tuple[Any, ...]] = field(init=False)

    @property
    def has_layers(self) -> bool:
        """Whether the trials write to overlay mounts."""
        return self.protection is Protection.LAYERS

    def __post_init__(self) -> None:
        self.user, self.home = self.root / "project", self.root / "home"
        shutil.copytree(SCRIPTS, self.user, ignore=shutil.ignore_patterns("__pycache__"))
        self.home.mkdir()
        if self.has_layers:
            self.permitted = permission(self.root / "permitted")
        seed_user_files(self.user)
        seed_user_files(self.home)
        self.cover()

    def cover(self, *extra: str) -> None:
        """Makes the workspace over the folders as they are now."""
        os.environ["HOME"] = str(self.home)
        covered = covered_folders(self.user, (sys.executable, *extra))
        self.workspace = Workspace(
            self.root / "space",
            covered,
            protection=self.protection,
            read_only=libraries(sys.executable),
            has_pids=self.permitted.has_pids,
            is_cut_off=self.permitted.can_be_cut_off,
        )
        self.workspace.folder.mkdir(exist_ok=True)
        self.runner = ColdRunner(self.workspace, choose_device("cpu"))
        self.before = digest(self.user, self.home)

    def job(self, *arguments: str, **changes: Any) -> TrialJob:
        """A trial of one of the scripts."""
        return make_job(self.user, *arguments, **changes)

    def run(self, *arguments: str, **changes: Any) -> TrialResult:
        """Runs a script to its end."""
        handle = self.runner.start(self.job(*arguments, **changes))
        handle.wait()
        return handle.result()

    def wait_for_line(self, words: bytes) -> None:
        """Waits until a running script has printed a line with these words, to its end: `print` writes it in parts."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for log in self.workspace.folder.glob("trials/*/output.log"):
                if any(words in line and line.endswith(b"\n") for line in log.read_bytes().splitlines(keepends=True)):
                    return
            time.sleep(0.02)
        raise AssertionError(f"no line with {words!r} was printed")

    def processes_left(self) -> list[int]:
        """Processes of trials that are still there after two seconds; looked at often, because some fork quickly."""
        deadline = time.monotonic() + 2.0
        num_empty = 0
        while num_empty < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
            num_empty = 0 if processes_of(self.workspace.folder) else num_empty + 1
        return processes_of(self.workspace.folder)

    def folders_left(self) -> list[Path]:
        """Folders of trials that nobody removed."""
        trials = self.workspace.folder / "trials"
        return list(trials.iterdir()) if trials.is_dir() else []

    def check_growth(self, server_pid: int, num_trials: int, run: Callable[[], None]) -> None:
        """Trials in a row of a script that leaves much behind leave what they are forked from, and all else, as it was.

        Args:
            server_pid: Of the process that they are forked from.
            num_trials: After one whose traces stay.
            run: Runs one to its end.
        """
        before, shared_before = look(server_pid, self.workspace.folder), left_in_shared_memory()
        assert not self.has_layers or before["server's layers"] > 0
        for _ in range(num_trials):
            run()
        assert self.processes_left() == []
        assert left_in_shared_memory() <= shared_before
        deadline = time.monotonic() + 2.0
        while grown := growth(before, look(server_pid, self.workspace.folder)):
            assert time.monotonic() < deadline, grown
            time.sleep(0.02)  # The last trial's pipes may still be closing.

    def check(self, fault: str, result: TrialResult | None) -> None:
        """Nothing runs, nothing of the user's changed, no folder is left, and the next trial works."""
        left = self.processes_left()
        after = digest(self.user, self.home)
        changed = sorted(path for path in {*self.before, *after} if self.before.get(path) != after.get(path))
        folders = self.folders_left()
        following = self.run("obeys.py")
        is_lost = following.outcome is not Outcome.OK
        outcome = result.outcome.value if result is not None else "(tuner killed)"
        TABLE.append((f"{fault} [{self.protection}]", outcome, len(left), len(changed), int(is_lost)))
        assert left == []
        assert not changed, changed[:10]
        assert folders == []
        assert not is_lost, f"the next trial ended {following.outcome}: {following.reason} {following.log_tail}"
