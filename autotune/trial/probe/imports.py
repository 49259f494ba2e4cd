"""What the script imported, and which variables it or its launcher changed before."""

from __future__ import annotations

import gc
import os
import site
import sys
import sysconfig
from pathlib import Path

READ_WHEN_ASKED = frozenset({"PYTORCH_NVML_BASED_CUDA_CHECK"})
"""torch looks at them at each question for devices, and at no import. Lightning sets it."""
SET_BY_PYTHON = frozenset({"LC_CTYPE", "__PYVENV_LAUNCHER__"})
"""Variables that the interpreter sets for itself."""
PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Names of folders for packages, on whatever path an environment finds them."""


def installed_modules() -> tuple[str, ...]:
    """Names of the imported modules that lie in the interpreter's own folders for packages, in order of their names.

    The script's own modules are not among them: what those do when they are imported is a part of every trial.
    """
    places = tuple(f"{os.path.realpath(place)}{os.sep}" for place in _package_folders())
    names = []
    for name, module in sys.modules.copy().items():
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(origin, str) and os.path.realpath(origin).startswith(places) and not name.startswith("autotune"):
            names.append(name)
    return tuple(sorted(names))


def imported_after_freeze() -> str:
    """The first of the imported modules from packages that came after the script had frozen its heap by `gc.freeze`.

    Empty where it froze nothing, or all of them. In a process that has them all beforehand it would freeze them, too,
    and its collections would be shorter than they are. For a process that was started, whose main module is as old as
    itself.
    """
    walked = {id(found) for found in gc.get_objects()}  # Frozen objects are not among them.
    if id(sys.modules.get("__main__")) in walked:
        return ""
    installed = set(installed_modules())
    late = (name for name, module in sys.modules.copy().items() if name in installed and id(module) in walked)
    return next(late, "")


def early_environment() -> tuple[str, ...]:
    """Names of the variables that were changed since the process started, and that an import may have read.

    Empty where the kernel does not keep them.
    """
    try:
        pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return ()
    before = dict(pair.partition(b"=")[::2] for pair in pairs if b"=" in pair)
    now = dict(os.environb)
    changed = {name for name in {*before, *now} if before.get(name) != now.get(name)}
    return tuple(sorted({os.fsdecode(name) for name in changed} - SET_BY_PYTHON - READ_WHEN_ASKED))


def launcher_sets_threads() -> bool:
    """Whether OMP_NUM_THREADS is not the user's: torchrun sets it to 1 for each of several processes if it is unset."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or "OMP_NUM_THREADS" not in os.environ:
        return False
    try:
        of_launcher = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return not any(pair.startswith(b"OMP_NUM_THREADS=") for pair in of_launcher)


def _package_folders() -> set[str]:
    """The interpreter's own, and those that an environment shares with others."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    folders.update(entry for entry in sys.path if Path(entry).name in PACKAGE_FOLDERS)
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    return folders
