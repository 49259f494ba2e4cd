"""Searches of training scripts that write everywhere: a digest of all user files before and after each search.

    python -m tests.sandbox.digest --scripts 100 --jobs 8

Each script has a user's folder with siblings, parents, links and absolute outputs (`playground.make_user`), a folder in
/tmp and a folder in /dev/shm. Every script runs without the sandbox as well, before or after the search, so the table
shows how many files the script alone changes. Needs neither a network nor a GPU. The results go to
tests/sandbox/DIGEST.md. The exit code is 1 if a search changed a file, left a process, or gave no answer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.sandbox import ordinary_user
from tests.sandbox.file_states import States, differences, states
from tests.sandbox.playground import make_user
from tests.sandbox.training_scripts import TrainingScript, training_scripts

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("DIGEST.md")
NUM_STEPS_ALONE = 24
LIMIT_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """One script after the search."""

    name: str
    num_files: int
    """Files, folders and links outside of the layers."""
    alone: int
    """Number of paths changed by the script without the sandbox."""
    changed: tuple[str, ...]
    """Paths outside of the layers changed by the search."""
    left: tuple[str, ...]
    """Processes that outlived the search."""
    exit_code: int
    status: str
    protection: str
    num_trials: int
    wall_s: float
    said: str
    """Last lines of the talk of a search without an answer."""

    @property
    def is_untouched(self) -> bool:
        """Whether the search gave an answer, changed nothing and left nothing, and the script alone changes files."""
        return self.exit_code == 0 and not self.changed and not self.left and self.alone > 0


class Place:
    """The user's files for one script, outside of all folders of others."""

    def __init__(self, script: TrainingScript) -> None:
        self._made: list[Path] = []
        self.root = self._new("/var/tmp")
        in_tmp, in_memory, self.ours = self._new("/tmp"), self._new("/dev/shm"), self._new("/var/tmp")
        self.watched = (self.root, in_tmp, in_memory)
        self.project = make_user(self.root)
        (self.root / "linked").mkdir()
        (self.project / "link").symlink_to("../linked")
        (self.project / "train.py").write_text(script.text)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_")},
            "HOME": str(self.root / "home"),
            "OUTPUT_DIR": str(self.root / "out"),
            "IN_TMP": str(in_tmp),
            "IN_MEMORY": str(in_memory),
            "XDG_STATE_HOME": str(self.ours),
            "PYTHONDONTWRITEBYTECODE": "",
            "OMP_NUM_THREADS": "1",
        }

    def _new(self, base: str) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="digest-", dir=base))
        self._made.append(folder)
        return folder

    def files(self) -> States:
        """State of all paths within reach of the script."""
        return states(*self.watched)

    def remove(self) -> None:
        """Removes the user's files."""
        for folder in self._made:
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, *command: str, cores: frozenset[int], **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the project, on some cores, to the end."""
        taskset = ["taskset", "--cpu-list", ",".join(map(str, sorted(cores)))] if shutil.which("taskset") else []
        return subprocess.run(
            [*taskset, *command],
            cwd=self.project,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )

    def processes(self) -> list[str]:
        """Processes with the user's folder in arguments, variables or working directory."""
        marks = [os.fsencode(path) for path in self._made]
        found = []
        for process in filter(lambda path: path.name.isdigit(), Path("/proc").iterdir()):
            try:
                words = (process / "cmdline").read_bytes()
                known = words + (process / "environ").read_bytes() + os.fsencode((process / "cwd").readlink())
            except OSError:
                continue
            if int(process.name) != os.getpid() and any(mark in known for mark in marks):
                found.append(f"{process.name} {words.decode(errors='replace')}")
        return found

    def processes_left(self) -> tuple[str, ...]:
        """Processes alive after two seconds."""
        deadline = time.monotonic() + 2.0
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return tuple(left)


def searched(script: TrainingScript, cores: frozenset[int], options: Sequence[str]) -> Searched:
    """Searches one script, and runs it alone: before the search for every second script, otherwise afterwards."""
    place = Place(script)
    try:
        alone = run_alone(place, cores) if script.number % 2 else 0
        before, began = place.files(), time.monotonic()
        command = [sys.executable, "-m", "autotune", "search", "train.py", "--device", "cpu", "--json", *options]
        command += ["--storage", f"sqlite:///{place.ours}/studies.db", "--out", f"{place.ours}/autotune.yaml"]
        ended = place.run(*command, cores=cores, PYTHONPATH=str(REPOSITORY), PYTHONDONTWRITEBYTECODE="1")
        wall_s, left = time.monotonic() - began, place.processes_left()
        after = place.files()
        alone = alone or run_alone(place, cores)
        document = json.loads(ended.stdout) if ended.returncode in (0, 7) and ended.stdout else {}
        return Searched(
            name=script.name,
            num_files=len(before),
            alone=alone,
            changed=differences(before, after),
            left=left,
            exit_code=ended.returncode,
            status=str(document.get("status", "")),
            protection=str(document.get("protection", "")),
            num_trials=int(document.get("num_trials", 0) or 0),
            wall_s=wall_s,
            said="" if document else ended.stderr.strip()[-1500:],
        )
    finally:
        place.remove()


def run_alone(place: Place, cores: frozenset[int]) -> int:
    """Number of paths changed by a short run without the sandbox; ends all processes left behind."""
    before = place.files()
    ended = place.run(sys.executable, "train.py", cores=cores, STEPS=str(NUM_STEPS_ALONE))
    if ended.returncode != 0:
        raise RuntimeError(f"The script fails by itself: {ended.stderr[-1000:]}")
    for process in place.processes():
        os.kill(int(process.split()[0]), 9)
    return len(differences(before, place.files()))


def shares_of_cores(num_jobs: int) -> list[frozenset[int]]:
    """Cores for each of the searches at work at the same time."""
    cores = sorted(os.sched_getaffinity(0))
    size = max(1, len(cores) // num_jobs)
    return [frozenset(cores[(job * size) % len(cores) :][:size]) for job in range(num_jobs)]


def run_all(scripts: Sequence[TrainingScript], num_jobs: int, options: Sequence[str]) -> list[Searched]:
    """Searches all scripts, several at once, and prints a line for each."""
    free: SimpleQueue[frozenset[int]] = SimpleQueue()
    for share in shares_of_cores(num_jobs):
        free.put(share)

    def search(script: TrainingScript) -> Searched:
        cores = free.get()
        try:
            found = searched(script, cores, options)
        finally:
            free.put(cores)
        word = "identical" if found.is_untouched else "NOT AS IT SHOULD BE"
        sys.stdout.write(f"{script.number:3} {row(found)} {word}\n")
        for line in (*found.changed, *found.left, *found.said.splitlines()):
            sys.stdout.write(f"      {line}\n")
        sys.stdout.flush()
        return found

    with ThreadPoolExecutor(num_jobs) as pool:
        return list(pool.map(search, scripts))


def row(found: Searched) -> str:
    """The line of one script in the table."""
    answer = found.status or f"exit {found.exit_code}"
    return (
        f"| {found.name} | {found.num_files} | {found.alone} | {len(found.changed)} | {len(found.left)} | {answer} | "
        f"{found.protection} | {found.wall_s:.0f} s |"
    )


def page(found: Sequence[Searched], num_jobs: int, options: Sequence[str]) -> str:
    """The results as Markdown."""
    num_untouched = sum(one.is_untouched for one in found)
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    lines = [
        "# Searches of scripts that write everywhere",
        "",
        f"Made by `python -m tests.sandbox.digest --scripts {len(found)} --jobs {num_jobs}` "
        f"({' '.join(options)}) as {user}, {time.strftime('%Y-%m-%d')}, Linux {platform.release()}, "
        f"{len(os.sched_getaffinity(0))} cores.",
        "",
        f"Everything outside of the layers identical before and after: {num_untouched} of {len(found)}.",
        "",
        "*Alone* counts the paths that the script changes in 24 steps without the sandbox; *changed* and *left* count "
        "paths and processes after the search.",
        "",
        "| kind of output, place | files | alone | changed | left | answer | protection | time |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *map(row, found),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Searches, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=int, default=100)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of scripts")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--time", default="90s")
    parser.add_argument("--protection", default="auto")
    parser.add_argument("--as-user", action="store_true", help="as an ordinary user; for root alone")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.as_user:
        words = [word for word in sys.argv[1:] if word != "--as-user"]
        command = ordinary_user.command_as_user([sys.executable, "-m", "tests.sandbox.digest", *words])
        sys.exit(subprocess.run(command, cwd=REPOSITORY, env=os.environ | {"HOME": "/var/tmp"}, check=False).returncode)
    options = ["--trials", str(asked.trials), "--time", asked.time, "--protection", asked.protection]
    scripts = [script for script in training_scripts(asked.scripts) if not asked.only or script.number in asked.only]
    found = run_all(scripts, asked.jobs, options)
    text = page(found, asked.jobs, options)
    try:
        asked.results.write_text(text)
    except PermissionError:
        sys.stdout.write(text)
    num_untouched = sum(one.is_untouched for one in found)
    sys.stdout.write(f"identical: {num_untouched} of {len(found)}\n")
    sys.exit(0 if num_untouched == len(found) else 1)


if __name__ == "__main__":
    main()
