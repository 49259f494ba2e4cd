"""Turns typed words into the command that starts the user's script, and checks that the script can run.

Nothing here executes or imports the user's code.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path, PurePath

from autotune.errors import UsageError

TORCHRUN = ("-m", "torch.distributed.run", "--standalone")
"""Starts N processes on a machine; restarts are the tuner's affair."""
SEARCH = ("autotune", "search")
NO_RESTARTS = "--max-restarts=0"
LAUNCHER_MODULES = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner"}
)
"""Modules that start another script after `python -m`; people know the job by the other script."""

LAUNCHERS = frozenset(
    {
        "torchrun",
        "accelerate",
        "deepspeed",
        "horovodrun",
        "composer",
        "fabric",
        "ray",
        "ipython",
        "coverage",
        "kernprof",
        "accelerate-launch",
        "ds",
        "torchx",
        "wandb",
        "mlflow",
        "dvc",
        "memray",
        "viztracer",
        "scalene",
        "pyinstrument",
        "ddtrace-run",
        "pytest",
    }
    | {"conda", "hatch", "pdm", "pipenv", "poetry", "tox", "nox"}
)
"""Programs in Python that start a script, and are not the training script themselves."""

_NUM_PROCESSES = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes|num[-_]gpus)(?:=(.*))?")
_LONGEST_LINE = 4096
"""Longest line read of a program, in bytes: a binary program may have no end of a line."""
PACKAGE = Path(__file__).resolve().parent.parent
_COMMAND_HINT = "A whole command goes after --, as in: autotune search -- torchrun --nproc-per-node 2 train.py"
_SCRIPT_HINT = (
    "Name the script that trains by its path, or its module after -m, as in: torchrun --nproc-per-node 2 train.py. "
    "Paths are relative to this folder."
)
_PROGRAM_HINT = "Programs are looked for on the PATH and beside this Python; a program elsewhere is named by its path."


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptCommand:
    """A command with the script that the command starts."""

    command: tuple[str, ...]
    script: str
    """Absolute path of the script, or the module's name after `-m`."""
    is_module: bool = False
    num_processes_per_node: int = 1

    @property
    def default_study(self) -> str:
        """Default name of a study: the module's name, or the script's name without the suffix."""
        return self.script if self.is_module else Path(self.script).stem


def script_command(script: str, args: Sequence[str], cwd: Path, *, num_processes: int = 1) -> ScriptCommand:
    """The command of `SCRIPT args`, with the Python that runs the tuner.

    Args:
        script: Typed path, relative to `cwd`.
        args: Arguments of the script.
        cwd: Folder in which the script will be started.
        num_processes: Number of processes that train together; torchrun starts more than 1.
    """
    return ScriptCommand(
        command=(*_launcher(num_processes), script, *args),
        script=_absolute(cwd, script),
        num_processes_per_node=num_processes,
    )


def module_command(module: str, args: Sequence[str], *, num_processes: int = 1) -> ScriptCommand:
    """The command of `-m MODULE args`; otherwise as `script_command`."""
    return ScriptCommand(
        command=(*_launcher(num_processes), "-m", module, *args),
        script=module,
        is_module=True,
        num_processes_per_node=num_processes,
    )


def _launcher(num_processes: int) -> tuple[str, ...]:
    if num_processes == 1:
        return (sys.executable,)
    return (sys.executable, *TORCHRUN, f"--nproc_per_node={num_processes}", NO_RESTARTS)


def whole_command(words: Sequence[str], cwd: Path) -> ScriptCommand:
    """The typed command, such as `torchrun --nproc-per-node 2 train.py --epochs 90`.

    The script is the first word that names a Python file, or the module after `-m`. Without such a word, a program
    that is a Python script is the script: pip installs commands so. A program outside the PATH is looked for beside
    this Python, as `torchrun` of an environment that was not activated.

    Raises:
        UsageError: The program does not exist, or no word of the command is a script.
    """
    program = _find_program(words[0], cwd)
    script, is_module = _script_among(words, program, cwd)
    return ScriptCommand(
        command=(program, *words[1:]),
        script=script,
        is_module=is_module,
        num_processes_per_node=_num_processes(words),
    )


def _find_program(word: str, cwd: Path) -> str:
    if os.sep in word:
        if (cwd / word).is_file() and os.access(cwd / word, os.X_OK):
            return word
    elif shutil.which(word):
        return word
    else:
        beside = Path(sys.executable).with_name(word)
        if os.access(beside, os.X_OK):
            return str(beside)
    raise UsageError(f"There is no program {word!r}.", _PROGRAM_HINT)


def _script_among(words: Sequence[str], program: str, cwd: Path) -> tuple[str, bool]:
    """The script or module of a command, and true for a module.

    Args:
        words: The command.
        program: The first word, or the program's path where the word alone does not start the program.
        cwd: Folder in which the command is started.
    """
    follows_m = False
    for word in words[1:]:
        if follows_m and word not in LAUNCHER_MODULES:
            return word, True
        follows_m = word in ("-m", "--module")
        if not word.startswith("-") and word.endswith(".py") and (cwd / word).is_file():
            return _absolute(cwd, word), False
    if Path(words[0]).name.startswith("python"):
        for word in words[1:]:
            if not word.startswith("-") and (cwd / word).is_file():
                return _absolute(cwd, word), False
    found = program if os.sep in program else shutil.which(program)
    if found is not None and Path(program).name not in LAUNCHERS and _is_python_script(cwd / found):
        return _absolute(cwd, found), False
    raise UsageError(f"No word of the command {' '.join(words)!r} is a Python script that is there.", _SCRIPT_HINT)


def _is_python_script(path: Path) -> bool:
    """Whether a program is a text that Python runs, by its first lines."""
    try:
        with path.open("rb") as file:
            first, second = file.readline(_LONGEST_LINE), file.readline(_LONGEST_LINE)
    except OSError:
        return False
    if not first.startswith(b"#!"):
        return False
    # The long path of an environment does not fit the first line: pip then lets a shell start Python.
    words = second.replace(b"'''exec'", b"") if second.startswith(b"'''exec'") else first[2:]
    return any(PurePath(os.fsdecode(word.strip(b"\"'"))).name.startswith("python") for word in words.split())


def _absolute(cwd: Path, word: str) -> str:
    # Links are not resolved: people know a script by the path that they type.
    return os.path.normpath(cwd / word)


def _num_processes(words: Sequence[str]) -> int:
    """Number of processes in a launcher's own option; 1 without the option or without a number."""
    for position, word in enumerate(words):
        match = _NUM_PROCESSES.fullmatch(word)
        if match is None:
            continue
        value = match[1] if match[1] is not None else "".join(words[position + 1 : position + 2])
        return int(value) if value.isdecimal() and int(value) > 0 else 1
    return 1


def as_typed(command: Sequence[str]) -> tuple[str, ...]:
    """The words of `autotune run` for the same command: the inverse of the functions above."""
    words = list(command)
    if not words or words[0] != sys.executable:
        return ("--", *words)
    words, options = words[1:], []
    if tuple(words[: len(TORCHRUN)]) == TORCHRUN and NO_RESTARTS in words:
        num_processes = words[len(TORCHRUN)].partition("=")[2]
        words, options = words[words.index(NO_RESTARTS) + 1 :], ["--nproc-per-node", num_processes]
    num_named = 2 if words[:1] == ["-m"] else 1
    if len(words) < num_named or (num_named == 1 and words[0].startswith("-")):
        return ("--", *command)
    arguments = ["--", *words[num_named:]] if words[num_named:] else []
    return (*words[:num_named], *options, *arguments)


def search_words(command: Sequence[str], *options: str) -> tuple[str, ...]:
    """The words of an `autotune search` of the same command with these options."""
    words = as_typed(command)
    at = words.index("--") if "--" in words else len(words)
    return (*SEARCH, *words[:at], *options, *words[at:])


def check_script(job: ScriptCommand, cwd: Path) -> None:
    """Checks before any start that the script exists and is valid Python.

    Raises:
        UsageError: The script does not exist, cannot be read, or is not Python.
    """
    path = _module_file(job.script, cwd) if job.is_module else Path(job.script)
    if path is None:
        return
    # Behind a link, Python puts the folder of the file first in sys.path.
    for folder in {cwd} if job.is_module else {path.parent, path.resolve().parent}:
        _check_package_is_seen(folder)
    shown = job.script if job.is_module else min(os.path.relpath(path, cwd), str(path), key=len)
    if path.is_dir():
        raise UsageError(f"{shown} is a folder, not a script.", "Name a file, or a package with -m.")
    if not path.is_file():
        hint = _COMMAND_HINT if os.sep not in shown and shutil.which(shown) else "Paths are relative to this folder."
        raise UsageError(f"There is no script {shown}.", hint)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}.", "See who may read it.") from error
    _check_syntax(content, shown)


def _check_package_is_seen(folder: Path) -> None:
    """Refuses a module of the user with the name of this package, because trials would import the user's module.

    Raises:
        UsageError: The folder has such a module.
    """
    for own in (folder / "autotune.py", folder / "autotune" / "__init__.py"):
        if own.is_file() and own.resolve().parent != PACKAGE:
            raise UsageError(
                f"{own} hides the package autotune from the script, in which it measures.", "Give it another name."
            )


def _check_syntax(content: bytes, shown: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is the script's affair
            ast.parse(content, filename=shown)
    except SyntaxError as error:
        where = f" line {error.lineno}" if error.lineno else ""
        raise UsageError(f"{shown}{where}: {error.msg}.", f"Mend it, and try it with: python {shown}") from error
    except ValueError as error:
        raise UsageError(f"{shown} is not a Python script: {error}.", _COMMAND_HINT) from error
    except (RecursionError, MemoryError):
        return  # limits of the parser; the first run tells more


def _module_file(name: str, cwd: Path) -> Path | None:
    """The file that `python -m NAME` runs; None for anything but a plain source file.

    Packages are found without an import, because an import would run the user's code here.

    Raises:
        UsageError: The module does not exist.
    """
    top, *parts = name.split(".")
    spec = _find_top(top, [str(cwd), *sys.path])
    for part in parts:
        spec = PathFinder.find_spec(part, _folders(spec))
    if spec is None:
        raise UsageError(f"There is no module {name!r}.", "Modules are looked for from this folder on.")
    if _folders(spec):
        spec = PathFinder.find_spec("__main__", _folders(spec))
        if spec is None:
            message = f"The package {name!r} has no __main__, so python -m cannot run it."
            raise UsageError(message, f"Name the module in it that trains, as in -m {name}.train")
    return Path(spec.origin) if spec.has_location and spec.origin and spec.origin.endswith(".py") else None


def _find_top(name: str, folders: list[str]) -> ModuleSpec | None:
    # All finders of the interpreter, since editable installations bring their own; importlib.util.find_spec would
    # import the packages above a module.
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find(name, folders) if find is not None else None
        if spec is not None:
            return spec
    return None


def _folders(spec: ModuleSpec | None) -> list[str]:
    """Folders of a package; none for a plain module."""
    return list(spec.submodule_search_locations or ()) if spec is not None else []
