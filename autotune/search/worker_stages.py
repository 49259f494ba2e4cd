"""Stages of the plan that see to the loader's workers, and on a CPU to the threads that share the cores with them. Pure."""

from __future__ import annotations

import math

from autotune.search.walk import Walk
from autotune.settings import OmpWaitPolicy
from autotune.space.space import Value

HEADROOM = 1.1
"""Workers are not even: a little more of them than the rates ask for."""

EXPECTED_GAIN = 2.0
"""Factor by which the usual gains raise the compute-only rate, for the first guess at the workers that feed it."""

FIRST_WORKERS = 4
"""Guess where nothing is known of the loader."""


def workers_for_usual_gains(walk: Walk) -> Value:
    """Workers that feed the faster compute that the usual gains should bring; one core is left to the training."""
    own, load_s, ceiling = walk.best.num_workers, walk.bounds.load_s, walk.ceiling
    if load_s is not None and ceiling is not None:
        need = math.ceil(HEADROOM * EXPECTED_GAIN * load_s * ceiling)
    else:
        need = max(2 * own, FIRST_WORKERS)
    return walk.at_most("num_workers", max(1, own, min(need, _cpus(walk) - 1)))


def feed(walk: Walk) -> None:
    """On an accelerator: as many workers as the compute-only rate needs, by what one of them delivers."""
    while not walk.is_fed():
        own = walk.best.num_workers
        need = min(_workers_for_ceiling(walk), max(_cpus(walk) - 1, own + 1))
        changes: dict[str, Value] = {"num_workers": walk.at_least("num_workers", need), "persistent_workers": True}
        if not walk.consider(changes, "workers"):
            break
    if not walk.is_fed():
        walk.climb("num_workers", "workers", steps=(-1,))


def _workers_for_ceiling(walk: Walk) -> int:
    own, ceiling, load_s = walk.best.num_workers, walk.ceiling, walk.bounds.load_s
    need = 2 * own
    if own and ceiling is not None and walk.best_rate:
        need = math.ceil(HEADROOM * own * ceiling / walk.best_rate)
    elif not own and ceiling is not None and load_s is not None:
        need = math.ceil(HEADROOM * load_s * ceiling)
    return max(own + 1, need)


def share_cores(walk: Walk) -> None:
    """On a CPU: workers and threads together, first balanced, then a worker per core, then around the best.

    A worker more is of no use while the training's threads hold its core: measured on two cores, two workers gave 594
    samples/s with two threads and 938 with one.
    """
    cpus = _cpus(walk)
    if not walk.is_fed():
        for workers in dict.fromkeys((_balanced_workers(walk), cpus)):
            _consider_share(walk, workers, max(1, cpus - workers))
    while any(_consider_share(walk, workers, threads) for workers, threads in _nearby_shares(walk)):
        pass
    walk.try_others("omp_wait_policy", "threads")


def _balanced_workers(walk: Walk) -> int:
    """Workers at which loader and training would be equally fast, if cores were all that counts."""
    cpus, load_s, ceiling = _cpus(walk), walk.bounds.load_s, walk.ceiling
    work_ratio = load_s * ceiling if load_s is not None and ceiling is not None else float(cpus)
    return max(1, min(round(cpus * work_ratio / (cpus + work_ratio)), cpus - 1))


def _nearby_shares(walk: Walk) -> list[tuple[int, int]]:
    own_workers, own_threads = walk.best.num_workers, walk.best.intra_op_threads
    workers = {step: walk.neighbour("num_workers", step) for step in (1, -1)}
    threads = {step: walk.neighbour("intra_op_threads", step) for step in (1, -1)}
    pairs = [
        (workers[1], own_threads),
        (workers[-1], own_threads),
        (own_workers, threads[1]),
        (own_workers, threads[-1]),
        (workers[-1], threads[1]),
        (workers[1], threads[-1]),
        (0, own_threads),
        (0, _cpus(walk)),
    ]
    return [(int(w), int(t)) for w, t in pairs if w is not None and t is not None]


def _consider_share(walk: Walk, workers: int, threads: int) -> bool:
    workers, threads = walk.at_most("num_workers", workers), walk.at_most("intra_op_threads", threads)
    is_crowded = threads > 1 and 0 < workers and workers + threads > walk.limits.usable_cpus
    changes: dict[str, Value] = {
        "num_workers": workers,
        "intra_op_threads": threads,
        "omp_wait_policy": (OmpWaitPolicy.PASSIVE if is_crowded else OmpWaitPolicy.DEFAULT).value,
        "persistent_workers": True,
    }
    return walk.consider(changes, "workers")


def _cpus(walk: Walk) -> int:
    return max(1, math.floor(walk.limits.usable_cpus))
