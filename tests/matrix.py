"""Unit and integration tests under several versions of Python and torch: `python -m tests.matrix`.

Each cell has an environment of its own, with the newest releases of all other packages. A build of torch for CUDA needs
6 GB of disk, so environments are removed after their run.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / ".matrix"
PYTHONS = ("3.11", "3.12", "3.13")
TORCHES = {"oldest": "torch==2.4.*", "newest": "torch"}
TESTS = ("tests/unit", "tests/integration")
MARKS = "not slow and not gpu"
HEAD = ("Python", "torch", "tests", "minutes")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One version of Python, and one wish for torch."""

    python: str
    torch: str

    @property
    def name(self) -> str:
        """Name for `--only`, and of the environment's folder."""
        return f"{self.python}-{self.torch}"

    @property
    def folder(self) -> Path:
        """The environment."""
        return FOLDER / self.name


CELLS = tuple(Cell(python=python, torch=torch) for python in PYTHONS for torch in TORCHES)


def main() -> None:
    """Prints a line of a Markdown table for each cell; exits with 1 where a test failed, and with 2 where none ran."""
    options = _options()
    chosen = [cell for cell in CELLS if not options.only or cell.name in options.only]
    FOLDER.mkdir(exist_ok=True)
    _print_row(HEAD)
    _print_row(["---"] * len(HEAD))
    codes = [_try(cell, options) for cell in chosen]
    ran = [code for code in codes if code is not None]
    sys.exit(2 if not ran else int(any(ran)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[cell.name for cell in CELLS], help="Cells to run; default all.")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="Files or folders of tests.")
    parser.add_argument("--keep", action="store_true", help="Keeps environments, and uses them again.")
    parser.add_argument("--processes", default="2", help="Processes of pytest.")
    return parser.parse_args()


def _try(cell: Cell, options: argparse.Namespace) -> int | None:
    """Exit status of a cell's tests; None where the environment cannot be made here."""
    log = FOLDER / f"{cell.name}.log"
    began = time.monotonic()
    try:
        python = _environment(cell, log)
        if isinstance(python, str):
            _print_row([cell.python, cell.torch, python, ""])
            return None
        code = _test(python, log, options)
        versions = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout.split()
        _print_row([*versions, _counts(log), f"{(time.monotonic() - began) / 60:.0f}"])
        return code
    finally:
        if not options.keep:
            shutil.rmtree(cell.folder, ignore_errors=True)


VERSIONS = "import platform, torch; print(platform.python_version(), torch.__version__)"


def _environment(cell: Cell, log: Path) -> Path | str:
    """The interpreter of a cell's environment, or the reason why there is none."""
    python = cell.folder / "bin" / "python"
    if python.exists():
        return python
    base = next(_interpreters(cell.python), None)
    if base is None:
        return f"no Python {cell.python} on this machine"
    install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    install += shlex.split(os.environ.get("PIP_FLAGS", ""))
    steps = (
        ("the environment", [base, "-m", "venv", cell.folder]),
        (TORCHES[cell.torch], [*install, TORCHES[cell.torch]]),
        ("the package", [*install, TORCHES[cell.torch], "--editable", ".[dev,studies]"]),
    )
    with log.open("w") as output:
        for what, command in steps:
            if subprocess.run(command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT, check=False).returncode:
                shutil.rmtree(cell.folder, ignore_errors=True)
                return f"{what} cannot be installed: {_last_error(log)}"
    return python


def _interpreters(version: str) -> Iterator[str]:
    """Interpreters of a version, on the path and among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")))]
    for path in filter(None, found):
        # A name on the path may be a shim for a version that is not chosen.
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if asked.stdout.startswith(f"Python {version}."):
            yield path


def _test(python: Path, log: Path, options: argparse.Namespace) -> int:
    command = [
        python,
        "-m",
        "pytest",
        *options.tests,
        "-m",
        MARKS,
        "-n",
        options.processes,
        "--dist",
        "loadscope",
        "-q",
    ]
    with log.open("a") as output:
        return subprocess.run(command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT, check=False).returncode


def _counts(log: Path) -> str:
    """The last line of pytest, such as `1 failed, 3 passed`."""
    found = re.findall(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s", log.read_text(errors="replace"), re.MULTILINE)
    return found[-1] if found else f"no summary, see {log}"


def _last_error(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line]
    return lines[-1].partition("ERROR: ")[2] if lines else f"see {log}"


def _print_row(cells: list[str] | tuple[str, ...]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
