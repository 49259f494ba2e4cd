"""Reads the script's imports, and the variables changed by the script or its launcher before torch was imported."""

from __future__ import annotations

import gc
import os
import site
import sys
import sysconfig
from pathlib import Path

from autotune.trial.start.fork_hazards import mapped_libraries

READ_WHEN_ASKED = frozenset({"PYTORCH_NVML_BASED_CUDA_CHECK"})
"""Variables read by torch at each question for devices, and at no import. Lightning sets this variable."""
OF_OTHER_OPENMP = "KMP_"
"""Begin of the names of variables read by Intel's and LLVM's OpenMP alone, at the start of these libraries. The import
of scikit-learn sets two of them, and torch's builds for Linux have GNU's OpenMP."""
OTHER_OPENMP = ("libiomp", "libomp")
SET_BY_PYTHON = frozenset({"LC_CTYPE", "__PYVENV_LAUNCHER__"})
"""Variables set by the interpreter for itself."""
GENERATED = "__autograph_generated_file"
"""Begin of the names of modules that TensorFlow makes of traced functions: other names in each process."""
PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Names of folders for packages, on any path."""


def imported_modules() -> tuple[str, ...]:
    """Sorted names of the imported top-level modules, without Python's own and without generated code."""
    names = {name.partition(".")[0] for name in sys.modules.copy()} - sys.stdlib_module_names
    return tuple(sorted(name for name in names if not name.startswith(GENERATED)))


def installed_modules() -> tuple[str, ...]:
    """Sorted names of the imported modules from the interpreter's folders for packages.

    The script's own modules are left out: their import is a part of every trial.
    """
    places = tuple(f"{os.path.realpath(place)}{os.sep}" for place in _package_folders())
    names = []
    for name, module in sys.modules.copy().items():
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(origin, str) and os.path.realpath(origin).startswith(places) and not name.startswith("autotune"):
            names.append(name)
    return tuple(sorted(names))


def imported_after_freeze() -> str:
    """The first module from packages imported after the script froze its heap by `gc.freeze`.

    Empty when the script froze nothing, or every module. In a process with all modules imported beforehand the script
    would freeze more, and garbage collections would be shorter. The main module must be as old as the process: forked
    processes are not supported.
    """
    walked = {id(found) for found in gc.get_objects()}  # Frozen objects are left out.
    if id(sys.modules.get("__main__")) in walked:
        return ""
    installed = set(installed_modules())
    late = (name for name, module in sys.modules.copy().items() if name in installed and id(module) in walked)
    return next(late, "")


def early_environment() -> tuple[str, ...]:
    """Names of variables changed since the process started and possibly read by an import.

    Empty when the kernel does not keep the environment of processes.
    """
    try:
        pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return ()
    before = dict(pair.partition(b"=")[::2] for pair in pairs if b"=" in pair)
    now = dict(os.environb)
    changed = {os.fsdecode(name) for name in {*before, *now} if before.get(name) != now.get(name)}
    if not any(map(mapped_libraries, OTHER_OPENMP)):
        changed = {name for name in changed if not name.startswith(OF_OTHER_OPENMP)}
    return tuple(sorted(changed - SET_BY_PYTHON - READ_WHEN_ASKED))


def launcher_sets_threads() -> bool:
    """Whether the launcher set OMP_NUM_THREADS: torchrun sets an unset variable to 1 for each of several processes."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or "OMP_NUM_THREADS" not in os.environ:
        return False
    try:
        of_launcher = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return not any(pair.startswith(b"OMP_NUM_THREADS=") for pair in of_launcher)


def _package_folders() -> set[str]:
    """The interpreter's folders for packages, and the folders shared with an environment."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    folders.update(entry for entry in sys.path if Path(entry).name in PACKAGE_FOLDERS)
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    return folders
