"""Stages of the plan for the workers, and on a CPU for the threads on the same cores. Pure."""

from __future__ import annotations

import math

from autotune.measure.bottleneck import BottleneckKind, diagnose
from autotune.search.batch_stages import with_fitting_batch
from autotune.search.bounds import LOADER_BOUND_WAIT
from autotune.search.history import FinishedTrial
from autotune.search.plan_state import PlanState
from autotune.settings import OmpWaitPolicy, Value
from autotune.settings.multiprocessing_context import StartMethod

USUAL_STAGE = "usual"
"""Stage of the first jump: the settings of an expert, from what the probe and the baseline show."""

WORKERS_STAGE = "workers"
"""Stage of trials with more or fewer workers, and on a CPU with more or fewer threads."""

THREADS_STAGE = "threads"
"""Stage of trials on an accelerator with fewer threads beside the workers."""

HEADROOM = 1.1
"""Factor of extra workers, because workers are uneven."""

EXPECTED_GAIN = 2.0
"""Expected factor of the usual gains on the compute-only rate, for the first guess of the workers."""

FIRST_WORKERS = 4
"""First guess of the workers when nothing is known of the loader."""

STARVED_GAIN = 1.05
"""Factor over the best rate from which a faster-computing trial is worth more workers."""


def workers_for_usual_gains(state: PlanState) -> Value:
    """Workers enough for the faster compute expected from the usual gains, at most one per core.

    Training on an accelerator leaves its own core idle for most of the time: a ResNet-50 on 16 cores was 6 % faster
    with 16 workers than with 8, and twice as fast when only the loader counted.
    """
    own, load_s = state.best.num_workers, state.bounds.load_s
    baseline, compute = state.visited.get(state.best), state.bounds.compute_rate(state.best)
    rate = baseline.samples_per_second if baseline is not None else None
    if own and rate and compute is not None and waits_for_data(state):
        need = math.ceil(HEADROOM * EXPECTED_GAIN * own * compute / rate)
    elif load_s is not None and compute is not None:
        need = math.ceil(HEADROOM * EXPECTED_GAIN * load_s * compute / state.limits.num_loaders)
    else:
        need = max(2 * own, FIRST_WORKERS)
    # A script may count the cores of the whole machine, and start more workers than its usable cores.
    return state.at_most("num_workers", max(1, min(max(own, need), _most_workers(state))))


def waits_for_data(state: PlanState) -> bool:
    """True when the script waits for the loader; False if unknown, because the script's settings are infeasible."""
    baseline = state.visited.baseline
    return baseline is not None and (baseline.data_wait_fraction or 0.0) > LOADER_BOUND_WAIT


def forked_workers(state: PlanState) -> dict[str, Value]:
    """The change to forked workers, when the space allows the script's own start method and a fork alone; else empty.

    The ranks of `torch.multiprocessing.spawn` start workers by spawn, one after the other, each with all imports of the
    script. Of 16 workers of a ResNet-50 on ImageNet six had started after 66 s.
    """
    is_slow = set(state.choices("multiprocessing_context")) == {StartMethod.DEFAULT.value, StartMethod.FORK.value}
    return {"multiprocessing_context": StartMethod.FORK.value} if is_slow else {}


def try_shares_of_cores(state: PlanState) -> None:
    """On an accelerator with a loader too slow: tries a worker on every core, on every second core, then between."""
    most = _most_workers(state)
    for workers in (most, most // 2):
        if workers and not state.is_fed():
            state.consider({"num_workers": state.at_most("num_workers", workers)}, WORKERS_STAGE)
    own, tried = state.best.num_workers, {trial.settings.num_workers for trial in state.visited.feasible}
    for other in sorted(tried - {own}, key=lambda number: abs(number - own))[:1]:
        if own and not state.is_fed():
            state.consider({"num_workers": state.at_most("num_workers", (own + other) // 2)}, WORKERS_STAGE)


def fewer_threads_beside_workers(state: PlanState) -> None:
    """On an accelerator: halves the threads of an operation while that is faster, where workers crowd the cores.

    Where fewer threads helped, or are not to be had, threads that sleep between operations follow.

    The threads of an operation wait for each other, and for longer when a worker holds a core. Domain adaptation beside
    an H200, with 16 workers and 16 threads on 16 cores, concatenates the images of two loaders on the CPU: 1,628 images
    per second, 4,710 with 8 threads, 5,540 when these sleep between operations.
    """
    own = state.best.intra_op_threads
    while _is_crowded(state) and state.best.intra_op_threads > 1 and state.choices("intra_op_threads"):
        fewer = state.at_most("intra_op_threads", state.best.intra_op_threads // 2)
        if not state.consider({"intra_op_threads": fewer}, THREADS_STAGE):
            break
    has_helped, is_fixed = state.best.intra_op_threads < own, len(state.choices("intra_op_threads")) < 2
    sleeping: dict[str, Value] = {"omp_wait_policy": OmpWaitPolicy.PASSIVE.value}
    if (has_helped or is_fixed) and _is_crowded(state) and state.limits.can_go_on(state.changed(sleeping)):
        state.consider(sleeping, THREADS_STAGE)


def _is_crowded(state: PlanState) -> bool:
    """True when workers and threads outnumber the cores, and the best trial loses time beside the wait for data."""
    best, trial = state.best, state.visited.get(state.best)
    num_busy = best.num_workers * state.limits.num_loaders + best.intra_op_threads
    is_alone = not best.num_workers or best.intra_op_threads < 2
    if is_alone or num_busy <= _cpus(state) or trial is None or not trial.samples_per_second:
        return False
    compute, wait = state.bounds.compute_rate(best), trial.data_wait_fraction or 0.0
    found = diagnose(trial.samples_per_second, compute, wait, device_is_cpu=False)
    return found.kind is BottleneckKind.CPU_CONTENTION


def feed(state: PlanState) -> None:
    """On an accelerator: raises the workers to the number needed by the fastest compute."""
    while (centre := _starved_trial(state)) is not None:
        need = min(_workers_needed(state, centre), max(_most_workers(state) - 1, centre.settings.num_workers + 1))
        changes: dict[str, Value] = {"num_workers": state.at_least("num_workers", need), "persistent_workers": True}
        settings = state.changed(changes, centre.settings)
        if not state.is_open(settings) or state.is_pointless(settings):
            break
        trial = state.measured(settings, WORKERS_STAGE)
        if (trial.samples_per_second or 0.0) <= (centre.samples_per_second or 0.0):
            break
    if not state.is_fed():
        state.climb("num_workers", WORKERS_STAGE, steps=(-1,))


def _starved_trial(state: PlanState) -> FinishedTrial | None:
    """The trial with clearly the fastest compute, or the best trial; None when the trial's loader keeps up."""
    centre = state.visited.get(state.best)
    highest = STARVED_GAIN * max(state.best_rate, state.bounds.compute_rate(state.best) or 0.0)
    for trial in state.visited.feasible:
        compute = state.bounds.compute_rate(trial.settings) or 0.0
        if compute > highest:
            centre, highest = trial, compute
    return None if centre is None or state.is_fed(centre) else centre


def _workers_needed(state: PlanState, centre: FinishedTrial) -> int:
    own, rate = centre.settings.num_workers, centre.samples_per_second
    compute, load_s = state.bounds.compute_rate(centre.settings), state.bounds.load_s
    need = 2 * own
    if own and compute and rate:
        need = math.ceil(HEADROOM * own * compute / rate)
    elif not own and compute and load_s is not None:
        need = math.ceil(HEADROOM * load_s * compute / state.limits.num_loaders)
    return max(own + 1, need)


def share_cores(state: PlanState) -> None:
    """On a CPU: tries workers and threads together, balanced, on half of the cores, on all, then next to the best.

    A further worker is useless while the training's threads hold the core: on two cores, two workers gave 594 samples/s
    with two threads, and 938 with a single thread.
    """
    if not state.is_fed():
        most, num_loaders = _most_workers(state), state.limits.num_loaders
        balanced = max(1, _balanced_workers(state) // num_loaders)
        for index, workers in enumerate(dict.fromkeys((balanced, max(1, most // 2), most))):
            num_threads = _cpus(state) - workers * num_loaders
            _consider_share(state, workers, num_threads, WORKERS_STAGE if index else USUAL_STAGE)
    while any(_consider_share(state, workers, threads) for workers, threads in _nearby_shares(state)):
        pass
    if state.best.num_workers and state.best.intra_op_threads > 1:
        state.consider({"omp_wait_policy": OmpWaitPolicy.PASSIVE.value}, "threads")


def _balanced_workers(state: PlanState) -> int:
    """Workers for which loader and training would be equally fast, if only cores counted."""
    cpus, load_s, compute = _cpus(state), state.bounds.load_s, state.bounds.compute_rate(state.best)
    work_ratio = load_s * compute if load_s is not None and compute is not None else float(cpus)
    return max(1, min(round(cpus * work_ratio / (cpus + work_ratio)), cpus - 1))


def _nearby_shares(state: PlanState) -> list[tuple[int, int]]:
    """Workers and threads next to the best: more or fewer by 1, an exchange of 1, and no workers at all.

    If the loader keeps up, only fewer workers are left to try.
    """
    own_workers, own_threads = state.best.num_workers, state.best.intra_op_threads
    more_workers, fewer_workers = (state.neighbour("num_workers", step) for step in (1, -1))
    more_threads, fewer_threads = (state.neighbour("intra_op_threads", step) for step in (1, -1))
    pairs = [
        (more_workers, own_threads),
        (fewer_workers, own_threads),
        (own_workers, more_threads),
        (own_workers, fewer_threads),
        (fewer_workers, more_threads),
        (more_workers, fewer_threads),
        (0, own_threads),
        (0, _cpus(state)),
    ]
    most = own_workers if state.is_fed() else math.inf
    return [(int(w), int(t)) for w, t in pairs if w is not None and t is not None and int(w) <= most]


def _consider_share(state: PlanState, workers: int, threads: int, stage: str = WORKERS_STAGE) -> bool:
    workers, threads = state.at_most("num_workers", workers), state.at_most("intra_op_threads", max(1, threads))
    num_processes = workers * state.limits.num_loaders
    is_crowded = threads > 1 and workers > 0 and num_processes + threads > state.limits.usable_cpus
    changes: dict[str, Value] = {
        "num_workers": workers,
        "intra_op_threads": threads,
        "omp_wait_policy": (OmpWaitPolicy.PASSIVE if is_crowded else OmpWaitPolicy.DEFAULT).value,
        "persistent_workers": True,
        **forked_workers(state),
    }
    return state.consider(with_fitting_batch(state, changes), stage)


def _most_workers(state: PlanState) -> int:
    """Workers of one loader with which the workers of all loaders fill the cores, at least 1."""
    return max(1, _cpus(state) // state.limits.num_loaders)


def _cpus(state: PlanState) -> int:
    return max(1, math.floor(state.limits.usable_cpus))
