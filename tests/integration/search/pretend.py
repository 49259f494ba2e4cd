"""A user's folder with a script that only pretends to train, and the real command on it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.protocol.codec import to_plain
from autotune.store.repository import Repository
from tests.unit.facts import script_facts

SCRIPT = Path(__file__).with_name("pretend_train.py")
AUTOTUNE = (
    "import autotune.runner.quiet_wait as quiet_wait; quiet_wait.WAIT_LIMIT_S = 0; "
    "from autotune.cli import main; exit(main.main())"
)
"""The command, which does not wait for a quiet machine: what it measures here means nothing."""
TABLE: list[tuple[str, str, int, int, int]] = []
"""Rows of (fault, outcome, processes left, files changed, finished trials lost), printed at the end of the session."""
GRACE_S = 3.0
WAIT_LIMIT_S = 120.0
"""What is left of a killed tuner ends within this."""


class Project:
    """A folder with a script, a home, a temporary space and a database, all below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder, self.home, self.temporary = root / "project", root / "home", root / "tmp"
        self.log = root / "log" / "runs.jsonl"
        for made in (self.folder, self.home, self.temporary, root / "db", self.log.parent):
            made.mkdir()
        shutil.copy(SCRIPT, self.folder / "train.py")
        facts = script_facts(num_batch_norms=3, modules=(), first_step_s=0.1, step_s=0.001)
        (self.folder / "facts.json").write_text(json.dumps(to_plain(facts)))
        (self.folder / "notes.txt").write_text("the user's own notes")
        self.database = root / "db" / "study.db"
        self.url = f"sqlite:///{self.database}"
        self.before = self.files()

    def environment(self, **changes: str) -> dict[str, str]:
        own = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PRETEND_LOG": str(self.log),
            "AUTOTUNE_STORAGE": self.url,
            "OMP_NUM_THREADS": "1",
        }
        return {**os.environ, **own, **changes}

    def start(
        self,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        prelude: str = "",
        **options: Any,
    ) -> subprocess.Popen[str]:
        """The command `autotune` with these arguments, after the words of `prefix` and the statements of `prelude`."""
        return subprocess.Popen(
            [*prefix, sys.executable, "-c", prelude + AUTOTUNE, *arguments],
            cwd=self.folder,
            env=self.environment(**(variables or {})),
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                **options,
            },
        )

    def run(self, *arguments: str, **options: Any) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of the command, which ends by itself."""
        process = self.start(*arguments, **options)
        output, talk = process.communicate(timeout=540)
        return process.returncode, output or "", talk or ""

    def search(self, study: str, *more: str, num_trials: int = 3) -> tuple[str, ...]:
        """Words of a short search, whose trials really write to the log."""
        limits = ("--trials", str(num_trials), "--time", "8m", "--writable", str(self.log.parent))
        return ("search", "train.py", "--study", study, *limits, "--json", *more)

    def files(self) -> dict[str, str]:
        """The user's files with their contents' digests; a tuned config is not one of them."""
        found = (path for place in (self.folder, self.home) for path in place.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in found
            if path.name != "autotune.yaml"
        }

    def num_files_changed(self) -> int:
        return len(set(self.before.items()) ^ set(self.files().items()))

    def processes(self) -> list[int]:
        """Living processes that were started for a trial or as a tuner of this project."""
        marks = (f"PRETEND_LOG={self.log}".encode(), f"AUTOTUNE_TRIAL={self.temporary}".encode())
        found = []
        for entry in os.listdir("/proc"):
            try:
                variables = Path("/proc", entry, "environ").read_bytes() if entry.isdigit() else b""
            except OSError:
                continue
            if any(mark in variables for mark in marks):
                found.append(int(entry))
        return found

    def processes_left(self) -> list[str]:
        """Commands of the processes that do not end by themselves in a moment."""
        deadline = time.monotonic() + GRACE_S
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[-300:] for pid in left]

    def workspaces(self) -> list[Path]:
        return list(self.temporary.glob("autotune-*/*"))

    def trials(self, study: str) -> dict[int, tuple[Any, str, float]]:
        """Finished trials by number: settings, outcome and rate."""
        if not self.has_study(study):
            return {}
        with Repository.open(self.url) as repository:
            return {
                trial.number: (
                    trial.settings,
                    trial.result.outcome.value,
                    trial.result.measurement.samples_per_second if trial.result.measurement else 0.0,
                )
                for trial in repository.trials(study)
                if trial.result.outcome.is_finished
            }

    def has_study(self, study: str) -> bool:
        """Whether there is a database, and it holds a study of that name."""
        if self.url.startswith("sqlite") and not self.database.exists():
            return False
        with Repository.open(self.url) as repository:
            return study in [record.name for record in repository.studies()]

    def check(self, fault: str, outcome: str, finished: Mapping[int, Any], study: str = "train") -> None:
        """Adds a row to the table, and fails where it is not all zeros.

        Args:
            fault: What was done to the tuner.
            outcome: How it ended.
            finished: Trials that were finished by then.
            study: The study.
        """
        now = self.trials(study)
        num_lost = sum(now.get(number) != trial for number, trial in finished.items())
        row = (fault, outcome, len(self.processes_left()), self.num_files_changed(), num_lost)
        TABLE.append(row)
        assert row[2:] == (0, 0, 0), row

    def wait_for_trials(self, num: int, process: subprocess.Popen[str], study: str = "train") -> dict[int, Any]:
        """The finished trials, as soon as there are so many of them."""
        deadline = time.monotonic() + WAIT_LIMIT_S
        while len(found := self.trials(study)) < num:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.05)
        return found

    def runs(self) -> list[tuple[str, str, dict[str, Any] | None, float]]:
        """What the script noted: whether a run began or ended, its mode, settings, and how exact it was to be."""
        if not self.log.exists():
            return []
        return [tuple(json.loads(line)[:4]) for line in self.log.read_text().splitlines()]
