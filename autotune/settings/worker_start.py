"""What a loader's worker does before its first batch: fewer threads of libraries, and all cores of the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

START_CPUS: frozenset[int] | None = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
"""Cores of this process before the script's imports; None where the system does not tell."""


def _limit_blas(_: Any, num_threads: int) -> None:
    from threadpoolctl import threadpool_limits  # type: ignore[import-not-found, unused-ignore]

    threadpool_limits(num_threads)


LIMITS: Mapping[str, Callable[[Any, int], object]] = MappingProxyType(
    {
        "cv2": lambda cv2, num_threads: cv2.setNumThreads(num_threads),
        "numexpr": lambda numexpr, num_threads: numexpr.set_num_threads(num_threads),
        "pyarrow": lambda pyarrow, num_threads: pyarrow.set_cpu_count(num_threads),
        "numba": lambda numba, num_threads: numba.set_num_threads(num_threads),
        "threadpoolctl": _limit_blas,
    }
)
"""Functions that limit the threads of a library in this process, by module."""


def pinned_cpus() -> frozenset[int] | None:
    """The cores left to this process when a library has taken cores away since the start; None when none are gone."""
    if START_CPUS is None:
        return None
    now = frozenset(os.sched_getaffinity(0))
    return now if now < START_CPUS else None


class WorkerStart:
    """A `worker_init_fn` that runs the script's own function and then applies settings; can be pickled.

    Args:
        before: The script's own `worker_init_fn`.
        num_threads: Threads of each library in `LIMITS`; 0 leaves the libraries alone.
        cpus: Cores for the worker; None leaves the inherited cores.
    """

    def __init__(
        self, before: Callable[[int], None] | None, *, num_threads: int = 0, cpus: frozenset[int] | None = None
    ) -> None:
        self.before, self.num_threads, self.cpus = before, num_threads, cpus

    def __call__(self, worker_id: int) -> None:
        """Prepares this process."""
        if self.cpus is not None:
            os.sched_setaffinity(0, self.cpus)
        if self.before is not None:
            self.before(worker_id)
        for module, limit in LIMITS.items() if self.num_threads else ():
            if module in sys.modules:
                try:
                    limit(sys.modules[module], self.num_threads)
                except Exception:  # A library of another version; the worker loads as before.
                    continue


def put_in(arguments: dict[str, Any], **changes: Any) -> None:
    """Adds a preparation to the `worker_init_fn` among a loader's arguments."""
    current = arguments.get("worker_init_fn")
    if not isinstance(current, WorkerStart) and not any(changes.values()):
        return
    kept = {"num_threads": current.num_threads, "cpus": current.cpus} if isinstance(current, WorkerStart) else {}
    before = current.before if isinstance(current, WorkerStart) else current
    arguments["worker_init_fn"] = WorkerStart(before, **{**kept, **changes})


def begun_anew(loader: Any, wanted: Any) -> Any:
    """The `worker_init_fn` of a built loader after a change of settings.

    Args:
        loader: A loader whose own function may have come after the construction, as frameworks do.
        wanted: The function among the arguments after the change.
    """
    current = _below_gate(loader)
    own = current.before if isinstance(current, WorkerStart) else current
    if not isinstance(wanted, WorkerStart):
        return own
    return WorkerStart(own, num_threads=wanted.num_threads, cpus=wanted.cpus)


def start_of(loader: Any) -> WorkerStart | None:
    """The preparation of a loader's workers; None without one."""
    found = _below_gate(loader)
    return found if isinstance(found, WorkerStart) else None


def _below_gate(loader: Any) -> Any:
    """The `worker_init_fn` of a loader without the gate that a trial puts around."""
    current = getattr(loader, "worker_init_fn", None)
    return getattr(current, "user_init", current)
