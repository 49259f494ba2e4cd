"""Parts of a command that starts Python: interpreter, options, words of the script."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.protocol.job import TrialJob


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """Options of the interpreter, and the words from the script on."""

    options: tuple[str, ...]
    words: tuple[str, ...]


def plain_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command without options of the interpreter."""
    python = read_python(command)
    assert python is not None
    return (command[0], *python.words)


def own_modules(job: TrialJob) -> tuple[str, ...]:
    """Names of the modules and packages in the first folder of the script's sys.path."""
    python = read_python(job.command)
    assert python is not None
    folder = Path(job.cwd) if python.words[0] == "-m" else Path(job.cwd, python.words[0]).resolve().parent
    files = [path.name.partition(".")[0] for path in folder.glob("*.py")]
    return tuple(sorted({*files, *(path.parent.name for path in folder.glob("*/__init__.py"))}))


def read_python(command: tuple[str, ...]) -> PythonCommand | None:
    """The parts of a command; None for commands of other programs."""
    if not Path(command[0]).name.startswith("python"):
        return None
    index = 1
    while index < len(command) and command[index].startswith("-") and command[index] != "-m":
        index += 1
    return PythonCommand(command[1:index], command[index:])
