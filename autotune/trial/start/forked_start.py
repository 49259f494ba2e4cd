"""A trial that was forked from a process which had imported what the script imports: preload, check, run.

The order of the calls is `preload` and `why_not` in the server, once, then `run` in every child, which never returns.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import importlib
import importlib.machinery
import io
import os
import random
import runpy
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.protocol.supervision import SupervisorSpec
from autotune.sandbox import redirect
from autotune.trial.start import fork_hazards, forked_heap
from autotune.trial.torch.patching import rebindable

OPENBLAS_CALLS = (
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
)
"""One of them is there, by the way in which the library was built."""
OPENBLAS_END = "blas_thread_shutdown_"
"""Ends its threads, as it does itself before a fork; the next call that takes several makes them anew."""
INTERRUPTED = 256
"""Status of a script that an interrupt ended: beyond all that a script can give."""
LAZY_PACKAGES = ("torch._inductor", "triton")
"""Imported when something is compiled, and they may start processes of their own when they are."""
IMPORTED_BY_NAME = (
    ("torch.autograd", "backward"),
    ("torch.cuda", "is_available"),
    ("torch.cuda", "device_count"),
    ("torch.cuda", "set_device"),
    ("torch.cuda", "reset_peak_memory_stats"),
    ("torch.nn.utils", "clip_grad_norm_"),
    ("torch.nn.utils", "clip_grad_value_"),
    ("torch.nn.utils", "clip_grads_with_norm_"),
    ("torch.nn.utils.clip_grad", "clip_grad_norm_"),
    ("torch.nn.utils.clip_grad", "clip_grad_value_"),
)
"""Functions that are wrapped in the script's beginning, or when the settings are known, and that modules may have
imported by their names before."""


def preload(names: Sequence[str]) -> None:
    """Imports modules by name, and freezes all that is there then; what cannot be imported is left to the script.

    Args:
        names: What the script had imported from installed packages by the end of its probe.
    """
    torch = importlib.import_module("torch")
    if redirect.VARIABLE in os.environ:
        redirect.install_torch(torch)
    for module, function in IMPORTED_BY_NAME:
        if hasattr(importlib.import_module(module), function):
            rebindable(sys.modules[module], function)
    for name in names:
        if not name.startswith(LAZY_PACKAGES):
            try:
                importlib.import_module(name)
            except Exception:
                continue
    importlib.import_module("autotune.trial.start.bootstrap")
    forked_heap.freeze()


def why_not(known_descriptors: frozenset[int], late: frozenset[str]) -> str:
    """Why processes cannot be forked from this one soundly; empty when they can.

    Args:
        known_descriptors: Open files that are accounted for.
        late: Names of modules that a fresh interpreter would take from the script's own folder.
    """
    shadowed = sorted(late.intersection(sys.modules))
    if shadowed:
        return f"the script's folder has a module {shadowed[0]}, and so has a package that it imports"
    return fork_hazards.why_not("an import", is_known=lambda number, _: number in known_descriptors)


def run(spec: SupervisorSpec) -> None:
    """Runs the spec's command in this process as a fresh interpreter would, and ends it; never returns.

    Args:
        spec: Of the trial. The command is interpreter, script or -m and module, arguments.
    """
    ready_at = time.monotonic()
    change_environment(spec.environment)
    renew_redirection()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    sys.orig_argv[:] = spec.started_as
    status = _run_command(list(spec.command), ready_at)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # What the interpreter calls first when it ends.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        if status == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)  # So ends an interpreter that nobody caught the interrupt in.
    finally:
        os._exit(130 if status == INTERRUPTED else status)


def change_environment(changes: Mapping[str, str | None]) -> None:
    """Makes the server's variables the trial's own; what was derived from TMPDIR before follows it.

    What a library has read of them already is changed by its call, where it has one.
    """
    theirs = os.environ.get("TMPDIR", "")
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    ours = changes.get("TMPDIR")
    if theirs and ours:
        # Where a compiler caches is one on a CPU: what one trial has compiled must not be there for the next.
        for name in os.environ.keys() - changes.keys():
            os.environ[name] = os.environ[name].replace(theirs, ours)
        if tempfile.tempdir == theirs:
            tempfile.tempdir = ours
    if "OMP_NUM_THREADS" in changes and os.environ.get("OMP_NUM_THREADS", "").isdigit():
        limit_blas_threads(int(os.environ["OMP_NUM_THREADS"]))


def renew_redirection() -> None:
    """Redirects what this process writes to its own layer, where writes are redirected."""
    if redirect.VARIABLE in os.environ:
        redirect.renew()


def _run_command(command: Sequence[str], ready_at: float) -> int:
    """The exit status of the script."""
    try:
        forked_heap.thaw()
        _seed(int(os.environ["AUTOTUNE_SEED"]))
        importlib.import_module("autotune.trial.start.bootstrap").install(ready_at)
        main = _new_main()
        is_module = command[1] == "-m"
        sys.argv = list(command[2 if is_module else 1 :])
        if is_module:
            _import_first_from(Path.cwd())
            runpy._run_module_as_main(command[2])  # type: ignore[attr-defined]  # What the interpreter itself calls.
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
    """What a fresh interpreter does when the two are imported; torch is seeded where it is attached to."""
    random.seed(seed)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random").seed(seed)


def _import_first_from(folder: Path) -> None:
    """Makes the script's folder the first to import from, unless PYTHONSAFEPATH forbids that."""
    if not sys.flags.safe_path:
        sys.path[0] = str(folder)


def _new_main() -> types.ModuleType:
    """An empty main module, as a fresh interpreter has it."""
    module = types.ModuleType("__main__")
    vars(module).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    if "__mp_main__" in sys.modules:
        # multiprocessing keeps it under a second name, by which spawned processes send back what they define.
        sys.modules["__mp_main__"] = module
    return module


def _run_file(module: types.ModuleType, path: Path) -> None:
    """Executes a file as the main module; the interpreter, too, makes its name absolute."""
    loader = importlib.machinery.SourceFileLoader("__main__", str(path))
    module.__dict__.update(__file__=str(path), __cached__=None, __loader__=loader)
    with io.open_code(str(path)) as file:
        code = compile(file.read(), str(path), "exec")
    exec(code, module.__dict__)


def _below_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from the script's own first line on, as a fresh interpreter prints it."""
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


def limit_blas_threads(num_threads: int) -> None:
    """Gives every OpenBLAS of this process that many threads, as OMP_NUM_THREADS does when it is loaded.

    torch and its MKL are told by `torch.set_num_threads`, when the settings are applied.
    """
    for path in fork_hazards.mapped_libraries("openblas"):
        library = ctypes.CDLL(path)
        for name in OPENBLAS_CALLS:
            if hasattr(library, name):
                getattr(library, name)(num_threads)
        # That has made all the threads which the fork had ended, though fewer are to compute.
        if hasattr(library, OPENBLAS_END):
            getattr(library, OPENBLAS_END)()
