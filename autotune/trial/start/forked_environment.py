"""Environment variables of a forked trial, and what libraries derived from the server's variables."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Mapping

from autotune.protocol.environment import REDIRECT, THREADS_BY_CALL, TMPDIR
from autotune.sandbox import redirect
from autotune.trial.start import fork_hazards

OPENBLAS_CALLS = (
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
)
"""Names of the call in the different builds of OpenBLAS."""
OPENBLAS_END = "blas_thread_shutdown_"
"""Ends the library's threads, as the library does before a fork; the next parallel call starts new threads.

OpenBLAS 0.3.34, of numpy 2.5, does not export the name: the threads above the limit stay asleep, without work."""


def change_environment(changes: Mapping[str, str | None]) -> None:
    """Gives this process the trial's variables in place of the server's.

    Variables and paths derived from the server's TMPDIR follow the trial's. Libraries that have read a variable already
    get the new value by a call, where the library has a call.

    Args:
        changes: New values; None removes a variable.
    """
    theirs, ours = os.environ.get(TMPDIR, ""), changes.get(TMPDIR)
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if theirs and ours:
        # On a CPU, compilers cache below TMPDIR: a trial must not find the code that an earlier trial compiled.
        for name in os.environ.keys() - changes.keys():
            os.environ[name] = os.environ[name].replace(theirs, ours)
        if tempfile.tempdir == theirs:
            tempfile.tempdir = ours
    name = THREADS_BY_CALL[0]
    num_threads = os.environ.get(name, "") if name in changes else ""
    if num_threads.isdigit():
        limit_blas_threads(int(num_threads))


def renew_redirection() -> None:
    """Redirects this process's writes to the trial's layer, on systems with redirected writes."""
    if REDIRECT in os.environ:
        redirect.renew()


def limit_blas_threads(num_threads: int) -> None:
    """Sets the number of threads of every OpenBLAS in this process, as OMP_NUM_THREADS does at the library's load.

    torch and torch's MKL get the number by `torch.set_num_threads`, with the settings.
    """
    for path in fork_hazards.mapped_libraries("openblas"):
        library = ctypes.CDLL(path)
        for name in OPENBLAS_CALLS:
            if hasattr(library, name):
                getattr(library, name)(num_threads)
        # The call above has restarted all threads that the fork had ended, even for a smaller number.
        if hasattr(library, OPENBLAS_END):
            getattr(library, OPENBLAS_END)()
