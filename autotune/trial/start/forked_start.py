"""A trial forked from a process with the script's imports: preload, check, run.

The server calls `preload_torch`, `preload` and `why_not` once; each trial calls `run`, which never returns.
"""

from __future__ import annotations

import atexit
import builtins
import importlib
import importlib.machinery
import io
import os
import random
import runpy
import signal
import sys
import threading
import time
import types
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autotune.protocol.environment import REDIRECT, SEED
from autotune.protocol.supervision import SupervisorSpec
from autotune.sandbox import redirect
from autotune.trial.start import fork_hazards, forked_heap
from autotune.trial.start.forked_environment import change_environment, renew_redirection
from autotune.trial.torch.patching import make_rebindable

INTERRUPTED = 256
"""Status of a script that ended by an interrupt; no script can exit with this number."""
LAZY_PACKAGES = ("torch._inductor", "triton")
"""Packages for compilation: the first compilation imports them, and the import may start processes."""


def preload_torch(names: Sequence[str]) -> None:
    """Imports torch, the one module that every script to be measured imports, and further modules.

    Args:
        names: Modules to import after torch.
    """
    torch = importlib.import_module("torch")
    if REDIRECT in os.environ:
        redirect.install_torch(torch)
    make_rebindable()
    _import_all(names)


def preload(names: Sequence[str]) -> None:
    """Imports modules by name and freezes the heap, after `preload_torch`.

    The script meets the errors of failed imports again.

    Args:
        names: Modules from installed packages that the script had imported by the end of the probe.
    """
    _import_all(names)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # Every trial seeds it.
    _bootstrap()
    _keep_out_compiler()
    forked_heap.freeze()


def _import_all(names: Sequence[str]) -> None:
    """Imports modules by name, as far as possible, but for those that a first compilation imports."""
    for name in names:
        if not name.startswith(LAZY_PACKAGES):
            with suppress(Exception):
                importlib.import_module(name)


def _bootstrap() -> types.ModuleType:
    """The module that attaches a trial to torch; the import loads torch."""
    from autotune.trial.start import bootstrap

    return bootstrap


def _keep_out_compiler() -> None:
    """Keeps torch's compiler out of our code, once for all trials."""
    from autotune.trial.torch.compiler_exclusion import keep_out_compiler

    keep_out_compiler()


def why_not(known_descriptors: frozenset[int], late: frozenset[str]) -> str:
    """Why forks of this process are not sound; empty when forks are sound.

    Args:
        known_descriptors: Files that may be open.
        late: Names of modules that a fresh interpreter would import from the script's folder.
    """
    shadowed = sorted(late.intersection(sys.modules))
    if shadowed:
        return f"the script's folder has a module {shadowed[0]}, and so has a package that it imports"
    return fork_hazards.why_not("an import", is_known=lambda number, _: number in known_descriptors)


def run(spec: SupervisorSpec) -> None:
    """Runs the spec's command in this process as a fresh interpreter would, and ends the process; never returns.

    Args:
        spec: Spec of the trial. The command is interpreter, script or -m and module, arguments.
    """
    ready_at = time.monotonic()
    change_environment(spec.environment)
    renew_redirection()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    sys.orig_argv[:] = spec.started_as
    status = _run_command(spec.command, ready_at)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # The interpreter's first call at its end.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        if status == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)  # The end of an interpreter after an uncaught interrupt.
    finally:
        os._exit(130 if status == INTERRUPTED else status)


def _run_command(command: Sequence[str], ready_at: float) -> int:
    """The exit status of the script."""
    try:
        forked_heap.thaw()
        _seed(int(os.environ[SEED]))
        _bootstrap().install(ready_at)
        main = _new_main()
        is_module = command[1] == "-m"
        sys.argv = list(command[2 if is_module else 1 :])
        if is_module:
            _import_first_from(Path.cwd())
            runpy._run_module_as_main(command[2])  # type: ignore[attr-defined]  # The interpreter's call for -m.
        else:
            _import_first_from(Path(command[1]).resolve().parent)
            _run_file(main, Path.cwd() / command[1])
    except SystemExit as ending:
        return _status_of(ending)
    except BaseException as error:
        error.__traceback__ = _below_ours(error.__traceback__)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _seed(seed: int) -> None:
    """Seeds random and numpy, as a fresh interpreter of a trial does at their import; `bootstrap` seeds torch."""
    random.seed(seed)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random").seed(seed)


def _import_first_from(folder: Path) -> None:
    """Puts the script's folder first in sys.path, unless PYTHONSAFEPATH forbids the folder."""
    if not sys.flags.safe_path:
        sys.path[0] = str(folder)


def _new_main() -> types.ModuleType:
    """An empty main module, as in a fresh interpreter."""
    module = types.ModuleType("__main__")
    vars(module).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    if "__mp_main__" in sys.modules:
        # Spawned processes of multiprocessing name the main module so when they send objects back.
        sys.modules["__mp_main__"] = module
    return module


def _run_file(module: types.ModuleType, path: Path) -> None:
    """Executes a file as the main module, under an absolute name as in the interpreter."""
    loader = importlib.machinery.SourceFileLoader("__main__", str(path))
    module.__dict__.update(__file__=str(path), __cached__=None, __loader__=loader)
    with io.open_code(str(path)) as file:
        code = compile(file.read(), str(path), "exec")
    exec(code, module.__dict__)


def _below_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from the script's first line on, as a fresh interpreter prints tracebacks."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


def _status_of(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    if isinstance(ending.code, int):
        return ending.code & 0xFF
    sys.stderr.write(f"{ending.code}\n")
    return 1
