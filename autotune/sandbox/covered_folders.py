"""The user's folders that trials must not change: derived from the command and the environment."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from autotune.sandbox.mounts import mounts_below
from autotune.sandbox.sandbox_error import SandboxError

CACHE_VARIABLES = (
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TORCH_HOME",
    "KERAS_HOME",
    "NLTK_DATA",
    "WANDB_DIR",
    "WANDB_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "MPLCONFIGDIR",
)
"""Variables that move caches and settings out of the home folder."""
OF_LIBRARIES = ("VIRTUAL_ENV", "CONDA_PREFIX", "PATH", "PWD", "OLDPWD", "TMPDIR", "AUTOTUNE_STORAGE", "XDG_STATE_HOME")
"""Variables with folders that no script writes to, or that many programs write to."""
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
TEXTS = (".py", ".sh", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
"""Suffixes of files with settings."""
ABSOLUTE = re.compile(rb"/[A-Za-z0-9_][A-Za-z0-9_./+-]{2,200}")
NEVER = ("dev", "proc", "sys")
SYSTEM = (*NEVER, "run", "usr", "bin", "lib", "lib64", "etc", "boot", "sbin")
"""Places without files of training scripts. The working directory may lie here: images use /usr/src/app."""
MAX_PATH = 4096
"""Longest path in a variable."""
MAX_ENTRIES = 2000
"""Most entries of a folder to examine for links and settings."""
MAX_TEXT_BYTES = 1 << 20
"""Most bytes of a file to search for paths."""


def covered_folders(
    cwd: Path, command: tuple[str, ...], environment: Mapping[str, str] = os.environ
) -> tuple[Path, ...]:
    """Folders whose writes go to layers, outer ones first; real paths.

    The folders are the working directory, the home folder, the folders of paths in the command, caches named by the
    environment, targets of links directly in the working directory and in the home folder, and mounts inside all of
    these.

    Raises:
        SandboxError: The working directory cannot be protected.
    """
    working, home = _working_folder(cwd), _home(environment)
    candidates = {working, *_linked(working)}
    if home is not None:
        candidates.update((home, *_linked(home)))
    elsewhere = _named(cwd, (*command[1:], *(environment.get(name, "") for name in CACHE_VARIABLES)))
    candidates.update(path for path in elsewhere if path.parts[1:2] and path.parts[1] not in SYSTEM)
    usable = {path for path in candidates if len(path.parts) > 1 and path.parts[1] not in NEVER}
    outermost = {path for path in usable if not any(other in path.parents for other in usable)}
    mounted = {Path(point) for path in outermost for point in mounts_below(str(path))}
    return tuple(sorted(outermost | {point for point in mounted if point.is_dir()}))


def needed_folders(cwd: Path, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Folders that every script must be able to write to: the working directory and the home folder; real paths.

    Raises:
        SandboxError: The working directory cannot be protected.
    """
    home = _home(environment)
    return tuple(sorted({_working_folder(cwd), *((home,) if home is not None else ())}))


def written_folders(
    cwd: Path, command: tuple[str, ...], environment: Mapping[str, str] = os.environ
) -> tuple[Path, ...]:
    """Folders that a script is likely to write to: covered folders, and folders in variables; real paths."""
    named = (Path(value) for value in environment.values() if value.startswith("/") and len(value) < MAX_PATH)
    found = {path.resolve() for path in named if _is_writable_folder(path)}
    return tuple(sorted({*covered_folders(cwd, command, environment), *found}))


def watched_folders(
    cwd: Path, command: tuple[str, ...], environment: Mapping[str, str] = os.environ
) -> tuple[Path, ...]:
    """Folders that a script without layers may change past the redirection, the nearest first; real paths.

    The folders are the covered folders, the two folders above the working directory, folders in variables, and folders
    of absolute paths in the text files of the working directory. Folders of the system, temporary folders and folders
    right below the root are too large, and belong to other programs as well.

    Raises:
        SandboxError: The working directory cannot be protected.
    """
    working = _working_folder(cwd)
    named = [value for name, value in environment.items() if name not in OF_LIBRARIES and value.startswith("/")]
    further = [*working.parents[:2], *_named(Path("/"), (*named, *_mentioned(working)))]
    large = {Path(tempfile.gettempdir()).resolve(), *map(Path, TEMPORARY), *Path(sys.base_prefix).resolve().parents}
    usable = [
        path
        for path in further
        if len(path.parts) > 2 and path.parts[1] not in SYSTEM and path not in large and os.access(path, os.W_OK)
    ]
    return tuple(dict.fromkeys((working, *covered_folders(cwd, command, environment), *usable)))


def _mentioned(folder: Path) -> Iterator[str]:
    """Absolute paths in the text files directly in a folder."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in islice(entries, MAX_ENTRIES) if entry.name.endswith(TEXTS) and entry.is_file()]
        for entry in found:
            with open(entry.path, "rb") as file:  # noqa: PTH123
                yield from map(os.fsdecode, ABSOLUTE.findall(file.read(MAX_TEXT_BYTES)))
    except OSError:
        return


def _working_folder(cwd: Path) -> Path:
    working = cwd.resolve()
    if len(working.parts) < 2 or working.parts[1] in NEVER:
        raise SandboxError(
            f"The working directory {working} cannot be protected from what trials write.",
            "Change to a folder of your own.",
        )
    return working


def _is_writable_folder(path: Path) -> bool:
    try:
        return path.is_dir() and os.access(path, os.W_OK)
    except (OSError, ValueError):
        return False


def _home(environment: Mapping[str, str]) -> Path | None:
    """The home folder, or the nearest existing folder above."""
    text = environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  pathlib raises where there is none
    if not Path(text).is_absolute():
        return None
    home = Path(text).resolve()
    return next((path for path in (home, *home.parents) if path.is_dir()), None)


def _linked(folder: Path) -> Iterator[Path]:
    """Targets of links directly in a folder: checkpoints and caches often live on another disk."""
    try:
        with os.scandir(folder) as entries:
            links = [entry.path for entry in islice(entries, MAX_ENTRIES) if entry.is_symlink()]
    except OSError:
        return
    for link in links:
        target = Path(os.path.realpath(link))
        if os.access(target, os.W_OK) and target.parts[1:2] and target.parts[1] not in SYSTEM:
            yield target if target.is_dir() else target.parent


def _named(cwd: Path, texts: tuple[str, ...]) -> Iterator[Path]:
    """Folders of paths in arguments and values: the folder itself, or the nearest existing folder above."""
    for text in texts:
        for value in {text, text.partition("=")[2]}:
            if not value or value.startswith("-"):
                continue
            try:
                path = (cwd / value).resolve()
                place = next(place for place in (path, *path.parents) if place.exists())
            except (OSError, ValueError, RuntimeError):
                continue  # Not a path.
            yield place if place.is_dir() else place.parent
