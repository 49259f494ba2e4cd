"""A user's folder with siblings, links, services and outputs elsewhere; hostile scripts run inside.

As a program: runs situations one after the other as the user of this process, and prints a line of JSON for each:
`python -m tests.sandbox.playground MODE FOLDER NAME ...`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from autotune.host import DeviceInfo
from autotune.measure.window_stopping import WindowRule
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.protection import ProtectionWish
from autotune.runner.cold_runner import ColdRunner
from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.units import GIB
from tests.jobs import job_of
from tests.sandbox.file_states import States, differences, states
from tests.sandbox.services import Services
from tests.sandbox.situations import GROUPS, LAYERS, SITUATIONS, Situation
from tests.unit.facts import script_facts

PRETEND = Path(__file__).parents[1] / "integration" / "runner" / "scripts" / "pretend.py"
CPU = DeviceInfo(kind="cpu", name="cpu", total_bytes=GIB, free_bytes=GIB)
MARK = "by-a-trial"
ISOLATED = "PLAYGROUND_IS_ISOLATED"
"""Variable of a playground in a process namespace of its own: every further process there is of a trial."""
LIMIT_S = 60.0
SYSTEM = (
    *("/", "/etc", "/etc/cron.d", "/etc/cron.hourly", "/var/spool/cron", "/var/spool/cron/crontabs", "/var/spool/at"),
    *("/var/spool/cron/atjobs", "/usr", "/run", "/var", "/var/tmp", "/tmp", "/dev", "/sys/fs/cgroup"),
    *("/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/mnt"),
)
"""Folders of the system to search for files of trials."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one situation."""

    name: str
    outcome: str
    said: str
    """Reason of the outcome, and the last output."""
    changed: tuple[str, ...]
    """Paths outside of the layers in another state than before, and messages to services."""
    unnamed: tuple[str, ...]
    """Changes without a word in the result."""
    num_left: int
    """Processes that outlive the trial."""
    wall_s: float


def make_user(root: Path) -> Path:
    """Fills a user's folder with common targets of scripts; returns the project, the folder of the scripts."""
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


class Playground:
    """One user with one study under one mode of protection.

    Args:
        root: The user's folder; may have a folder `group`, and nothing else.
        mode: A value of `Protection`.
    """

    def __init__(self, root: Path, mode: str) -> None:
        self.root, self._mode = root, mode
        self._project = make_user(root)
        self._base = Path(tempfile.mkdtemp(prefix="sandbox-", dir="/var/tmp")).resolve()
        self._in_tmp = Path(tempfile.mkdtemp(prefix="sandbox-input-", dir="/tmp"))
        self._in_memory = Path("/dev/shm", f"sandbox-{self._base.name}")
        self._services = Services(self._base)
        os.environ.update(
            HOME=str(root / "home"),
            TMPDIR=str(self._base),
            OUTPUT_DIR=str(root / "out"),
            IN_TMP=str(self._in_tmp / "input"),
            IN_MEMORY=str(self._in_memory),
            **self._services.variables,
        )
        if (root / "group").is_dir():
            os.environ["GROUP_DIR"] = str(root / "group")
        tempfile.tempdir = None
        (self._in_tmp / "input").write_text("input")
        self._in_memory.write_text("shared")
        wish = ProtectionWish(mode=mode)
        self.workspace = Workspace.open(None, cwd=self._project, command=(sys.executable, "hostile.py"), wish=wish)
        self.runner = ColdRunner(self.workspace, CPU)

    def close(self) -> None:
        """Removes everything outside of the user's folder."""
        self._services.close()
        self.workspace.remove()
        for folder in (self._base, self._in_tmp):
            remove_tree(folder)
        self._in_memory.unlink(missing_ok=True)
        for path in self._of_trials():
            Path(path).unlink(missing_ok=True)

    def play(self, situation: Situation, mode: Mode = Mode.TRIAL) -> Found:
        """Runs one script to its end, and compares everything outside of the layers."""
        (self._project / "hostile.py").write_text(situation.script)
        known, before, began = self._pids(), self._outside(), time.monotonic()
        handle = self.runner.start(self._job(mode))
        result = handle.probe_result() if mode is Mode.PROBE else handle.result()
        num_left = self._num_left(known)
        changed = self._changed(before, self._outside())
        if changed or self._mode != LAYERS:
            self._mend()
        return Found(
            name=situation.name,
            outcome="ok" if mode is Mode.PROBE else result.outcome.value,
            said=f"{result.reason} {result.log_tail}".strip(),
            changed=changed,
            unnamed=tuple(path for path in changed if not self._is_named(path, result.escaped)),
            num_left=num_left,
            wall_s=time.monotonic() - began,
        )

    def _changed(self, before: States, after: States) -> tuple[str, ...]:
        """Paths in another state; without layers the time of a folder with another entry counts as no change."""
        return differences(before, after, ignores_times_of_folders=self._mode != LAYERS)

    def _is_named(self, path: str, escaped: tuple[str, ...]) -> bool:
        """Whether the result names a change, or a removed folder around the change."""
        named = [str(self._project / name) for name in escaped if not name.startswith("(")]
        return self._mode != LAYERS and any(f"{path}/".startswith(f"{name}/") for name in named)

    def _mend(self) -> None:
        """Gives the user all files anew."""
        for entry in self.root.iterdir():
            if entry.name != "group":
                remove_tree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        make_user(self.root)
        (self._in_tmp / "input").write_text("input")
        self._in_memory.write_text("shared")
        for path in self._of_trials():
            remove_tree(Path(path)) if Path(path).is_dir() else Path(path).unlink(missing_ok=True)

    def _outside(self) -> States:
        found = states(self.root, self._in_tmp)
        found.update(dict.fromkeys(self._of_trials(), "made"))
        found[str(self._in_memory)] = self._in_memory.read_text() if self._in_memory.exists() else ""
        found["/etc/hosts"] = Path("/etc/hosts").read_text()
        found["interfaces"] = [line.split(":")[0] for line in Path("/proc/net/dev").read_text().splitlines()]
        found.update(self._services.states())
        return found

    def _of_trials(self) -> list[str]:
        """Paths of the system with the mark of these scripts, of this user: another user may play at the same time."""
        found = [str(path) for path in Path("/dev/shm").glob(f"{self._in_memory.name}-*")]
        for folder in map(Path, SYSTEM):
            try:
                marked = [path for path in folder.iterdir() if MARK in path.name]
                found += [str(path) for path in marked if path.lstat().st_uid == os.geteuid()]
            except OSError:
                continue
        return sorted(found)

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
            start_limit_s=LIMIT_S,
            total_limit_s=LIMIT_S,
        )

    def _num_left(self, known: set[int]) -> int:
        """Number of the trial's processes after two seconds."""
        deadline = time.monotonic() + 2.0
        while (left := [pid for pid in self._pids() - known if self._is_of_trial(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        return len(left)

    @staticmethod
    def _pids() -> set[int]:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}

    def _is_of_trial(self, pid: int) -> bool:
        process, mark = Path("/proc", str(pid)), b"AUTOTUNE_TRIAL=" + os.fsencode(self.workspace.folder)
        try:
            if (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False  # An ended process; its parent is slow to ask.
            words = (process / "cmdline").read_bytes().split(b"\0")
            return ISOLATED in os.environ or MARK.encode() in words or mark in (process / "environ").read_bytes()
        except OSError:
            return False


def main() -> None:
    """Runs the named situations; without names, all situations with a promise for this mode and user."""
    mode, folder, *names = sys.argv[1:]
    playground = Playground(Path(folder), mode)
    try:
        # Without protection a later situation may remove the folder of the group.
        for situation in sorted(SITUATIONS, key=lambda each: each not in GROUPS):
            is_possible = mode in situation.modes and not (situation.needs_root and os.geteuid() != 0)
            has_group = situation not in GROUPS or (playground.root / "group").is_dir()
            if is_possible and has_group and (not names or situation.name in names):
                sys.stdout.write(json.dumps({"begins": situation.name}) + "\n")
                sys.stdout.flush()
                sys.stdout.write(json.dumps(asdict(playground.play(situation))) + "\n")
                sys.stdout.flush()
    finally:
        playground.close()


if __name__ == "__main__":
    main()
