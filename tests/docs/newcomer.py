"""A newcomer's log: every command of the README typed in a fresh clone, with what it printed and how long it took.

    python -m tests.docs.newcomer [--time 2m] [--python PATH] [--all] [--out docs/newcomer.md]

The repository is cloned into a folder of its own and set up by `make setup`; `--python` takes an environment that is
there already. What the README says of your script is typed in a copy of tests/docs/project, what it shows at its top in
studies/jpeg_cnn of the clone. Searches are given `--time` by a variable, so that the words are the README's own; real
training is stopped after 40 s. With the usual 2 minutes for each search it takes 20 minutes; `--all` adds what
is left out otherwise: hours, and docker.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.docs.readme import Command, commands

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "project"
WHEEL_FOLDER = re.compile(r"^Looking in .*\n|(?<=Processing )/\S*/(?=\S*\.whl)", re.MULTILINE)
"""Where pip of this machine finds packages, which is of no use to a reader."""
LEFT_OUT = {
    "pip install .": "into the environment of one's own scripts; `make setup` installs the clone into .venv",
    "make search": "the same search as the first command of the page",
    "make session": "the same search again, recorded",
    "make newcomer": "this log",
    "make serve": "a server, which does not end by itself; tests/service/test_browser.py opens its page",
    "make test": "10 minutes; CI runs it",
    "make test-all": "an hour",
    "make matrix": "half an hour for each environment, and several GB",
    "make bench-diagnose": "5 minutes, and a quiet machine",
    "make bench-storage": "15 minutes, and a quiet machine",
    "pip install '.[storage]'": "`make setup` installs the same packages for the tests",
    "autotune pack data.py:make_dataset --to npy --out packed": "packs a dataset of one's own; tests/cli/test_pack.py",
    "autotune pack --check --out packed": "checks what the command before has packed; tests/cli/test_pack.py",
    "docker build -t autotune .": "needs docker; its steps run in tests/integration/test_dockerfile_steps.py",
    'docker run --rm --gpus all --shm-size=8g --init -v "$PWD":/project -v studies:/project/studies autotune search '
    "train.py": "needs docker and a GPU",
}
"""What is not typed unless it is asked for, and why."""
TRAINING, TRAINING_LIMIT_S = "autotune run ", 40.0
"""Real training goes on for as long as the script wants; most of the project's own ends before."""
WATCHED = "--watch"
"""Trains to the end of the project's script: the gate after it needs two minutes."""
TORCHRUN = "torchrun"
GIVEN = "left out, since the environment was given and not made"
NUM_LINES = 60
"""Of an output that are shown; the beginning and the end of a longer one."""


@dataclass(frozen=True)
class Typed:
    """How one command went."""

    command: Command
    folder: str
    code: int | None
    """None where it was stopped."""
    wall_s: float
    output: str

    @property
    def ending(self) -> str:
        """Its exit code in words."""
        return f"exit code {self.code}" if self.code is not None else "stopped: it trains for real"


@dataclass(frozen=True)
class Place:
    """A fresh clone and a project beside it."""

    root: Path
    environment: dict[str, str]
    names: tuple[tuple[str, str], ...] = ()
    """Paths of this machine, and what is written for them."""

    @property
    def clone(self) -> Path:
        """The repository."""
        return self.root / "autotune"

    @property
    def project(self) -> Path:
        """The newcomer's own folder."""
        return self.root / "project"

    def has(self, program: str) -> bool:
        """Whether a program is there to be called."""
        return shutil.which(program, path=self.environment["PATH"]) is not None

    def folder_of(self, command: Command) -> Path:
        """Where a command is typed."""
        if command.program in ("make", "docker", "pip"):
            return self.clone
        return self.project if command.heading else self.clone / "studies" / "jpeg_cnn"

    def type(self, command: Command) -> Typed:
        """Runs one command in a shell, to its end."""
        folder, began = self.folder_of(command), time.monotonic()
        # A second line, so that the shell stays and is not replaced by the command: completion asks which shell it is.
        shell = subprocess.Popen(
            ["bash", "-c", f"{command.words}\nexit $?"],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        is_endless = command.words.startswith(TRAINING) and WATCHED not in command.words
        limit_s = TRAINING_LIMIT_S if is_endless else None
        try:
            output, code = shell.communicate(timeout=limit_s)[0], shell.returncode
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)
            output, code = shell.communicate()[0], None
        for path, name in self.names:
            output = output.replace(path, name)
        output = WHEEL_FOLDER.sub("", output)
        where = str(folder.relative_to(self.root))
        return Typed(command, where, code, time.monotonic() - began, output)


def prepare(root: Path, *, python: Path | None, time_limit: str) -> Place:
    """Clones, copies the project, and says which autotune is meant; nothing is installed yet."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root / "autotune")], check=True)
    shutil.copytree(PROJECT, root / "project", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "home").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTUNE_", "PYTHON"))}
    folder = python.parent if python is not None else root / "autotune" / ".venv" / "bin"
    environment = {**kept, "HOME": str(root / "home"), "AUTOTUNE_TIME": time_limit, "NO_COLOR": "1"}
    environment["PATH"] = f"{folder}{os.pathsep}{kept.get('PATH', os.defpath)}"
    if python is not None:
        environment["PYTHONPATH"] = str(root / "autotune")  # its autotune may be another checkout
    return Place(root, environment, ((str(folder), "~/autotune/.venv/bin"), (str(root), "~")))


def wanted(*, with_all: bool, has_python: bool) -> list[Command]:
    """The commands to type, in the README's order; the set-up comes first, as whoever clones finds out."""
    found = [command for command in commands() if with_all or command.words not in LEFT_OUT]
    setup = [command for command in found if command.words == "make setup"]
    return [*([] if has_python else setup), *(command for command in found if command not in setup)]


def markdown(log: list[Typed], time_limit: str) -> str:
    """The log as a page."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    lines = [
        "# A newcomer's log",
        "",
        "Every command of the README, typed in a fresh clone, in its order. By `make newcomer`",
        f"({datetime.now(UTC):%Y-%m-%d}, commit {commit}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, load average {os.getloadavg()[1]:.1f}); each search was given {time_limit}.",
        "`~` stands for the folder in which it all was done.",
        "",
        "| command | ending | took |",
        "| --- | --- | --- |",
        *(f"| `{one.command.words}` | {one.ending} | {one.wall_s:.1f} s |" for one in log),
        "",
        "Not typed:",
        "",
        *(
            f"* `{command.words}`: {LEFT_OUT.get(command.words, GIVEN)}"
            for command in commands()
            if command not in [one.command for one in log]
        ),
    ]
    for one in log:
        lines += [
            "",
            f"## `{one.command.words}`",
            "",
            f"In `{one.folder}`, {one.wall_s:.1f} s, {one.ending}.",
            "",
        ]
        lines += [f"    {line}".rstrip() for line in shown(one.output)]
    return "\n".join(lines) + "\n"


def shown(output: str) -> list[str]:
    """The lines of an output, the middle of a long one left out."""
    lines = output.rstrip().splitlines()
    if len(lines) <= NUM_LINES:
        return lines
    half = NUM_LINES // 2
    return [*lines[:half], f"[... {len(lines) - 2 * half} lines ...]", *lines[-half:]]


def type_all(*, time_limit: str, python: Path | None = None, with_all: bool = False) -> list[Typed]:
    """Types the commands in a fresh clone; how each went."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        place = prepare(Path(folder), python=python, time_limit=time_limit)
        log = []
        for command in wanted(with_all=with_all, has_python=python is not None):
            if python is not None and not place.has(TORCHRUN) and f" {TORCHRUN} " in command.words:
                continue
            log.append(place.type(command))
            print(f"{log[-1].wall_s:7.1f} s  {log[-1].ending}: {command.words}", file=sys.stderr, flush=True)
        return log


def main() -> None:
    """Types everything, and writes the log."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.docs.newcomer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--time", default="2m", help="for each search")
    parser.add_argument("--python", type=Path, help="the interpreter of an environment that has all that is needed")
    parser.add_argument("--all", action="store_true", help="type what is left out as well")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "newcomer.md")
    options = parser.parse_args()
    log = type_all(time_limit=options.time, python=options.python, with_all=options.all)
    options.out.write_text(markdown(log, options.time))
    raise SystemExit(any(one.code for one in log))


if __name__ == "__main__":
    main()
