"""Predicts the time of a step after a single change, with formulas shared by all rules. Pure."""

from __future__ import annotations

from autotune.measure.bottleneck import BottleneckKind
from autotune.model.diagnosis import Diagnosis
from autotune.model.observation import LargerBatch, LoadingTimes

HAND_OVER_S = 0.0005
"""Seconds to hand a batch over: a queue, a pickle, a map of shared memory. Both the worker and the training process pay
as much. Measured between 0.2 and 0.6 ms; this cost makes small steps slower with any number of workers."""
HAND_OVER_BYTES_PER_S = 4e9
LEAST_GAIN, MAX_GAIN = 1.05, 50.0
"""Least and largest gain to promise: a smaller gain is within the error of a single run, and a single run cannot
support a larger promise."""


def is_foreign(diagnosis: Diagnosis) -> bool:
    """Whether batches come from a library's loader with threads of its own."""
    return diagnosis.facts.loader is None and bool(diagnosis.facts.foreign_loader)


def load_s(diagnosis: Diagnosis) -> float | None:
    """Seconds of building the batches of one step in one process; None when the loading was not observed."""
    loading = diagnosis.observation.loading
    if loading is None:
        return None
    if is_foreign(diagnosis):
        return loading.busy_s / diagnosis.observation.steps.num_steps
    if diagnosis.natural.num_workers == 0:
        return wait_s(diagnosis)  # measured without the cost of observation
    observed_s = loading.busy_s / loading.num_batches * diagnosis.facts.num_micro_batches_per_step
    # In the window all workers together built the batches of one step per step; a longer time is a disturbance.
    return min(observed_s, _num_builders(diagnosis, loading) * diagnosis.step_s)


def _num_builders(diagnosis: Diagnosis, loading: LoadingTimes) -> int:
    """Workers that build batches. Only a stream leaves workers idle: its shards may be fewer.

    The observation may be shorter than a batch of many workers takes; others then finish none meanwhile.
    """
    loader, workers = diagnosis.facts.loader, diagnosis.natural.num_workers
    is_stream = loader is not None and loader.is_iterable
    return loading.num_building or workers if is_stream else workers


def load_cpu_s(diagnosis: Diagnosis) -> float:
    """Processor seconds of building the batches of one step; 0 when the loading was not observed."""
    loading = diagnosis.observation.loading
    if loading is None:
        return 0.0
    return min(1.0, loading.cpu_s / loading.busy_s) * (load_s(diagnosis) or 0.0)


def least_building_s(diagnosis: Diagnosis) -> float:
    """Least seconds in which the workers build the batches of one step, on all usable cores.

    The workers' processor time is spread over the cores. No other process is counted. 0 without workers, or when the
    loading was not observed.
    """
    num_workers = diagnosis.natural.num_workers
    if num_workers == 0:
        return 0.0
    return load_cpu_s(diagnosis) / min(num_workers, max(1.0, diagnosis.usable_cpus))


def train_s(diagnosis: Diagnosis, factor: float = 1.0) -> float:
    """Seconds of a step outside the loader's `next()`.

    Under CPU contention the workers slow the training process down. The slow-down is the time beyond the compute-only
    time and the copies, and is in proportion to the workers' work. Otherwise the workers do not change the result.

    Args:
        diagnosis: The figures.
        factor: New building time over the present building time, at least 0.
    """
    own_s = diagnosis.step_s - wait_s(diagnosis)
    compute_s = diagnosis.compute_s
    if diagnosis.bottleneck is not BottleneckKind.CPU_CONTENTION or compute_s is None:
        return own_s
    alone_s = min(own_s, compute_s + (diagnosis.copy_share or 0.0) * diagnosis.step_s)
    return alone_s + factor * (own_s - alone_s)


def train_cpu_s(diagnosis: Diagnosis) -> float:
    """Processor seconds of a step in all threads of the training process, without the building of batches."""
    observed = diagnosis.observation
    if observed.cpu_wall_s <= 0:
        return 0.0
    all_s = observed.main_cpu_s / observed.cpu_wall_s * diagnosis.step_s
    return max(0.0, all_s - load_cpu_s(diagnosis)) if diagnosis.natural.num_workers == 0 else all_s


def wait_s(diagnosis: Diagnosis) -> float:
    """Seconds of one step inside the loader's `next()`."""
    return diagnosis.data_wait_fraction * diagnosis.step_s


def wait_with_larger_batch(diagnosis: Diagnosis, larger: LargerBatch) -> float:
    """Seconds of waiting for the samples of one step when batches are `larger.factor` times as large.

    Without workers a part of the building work is per batch, and shrinks. Time without work, such as waiting for a
    disk, is per sample and stays. All building by workers counts as work per sample.
    """
    waited_s, loading = wait_s(diagnosis), diagnosis.observation.loading
    if loading is None or larger.own_build_s is None or larger.build_s is None:
        return waited_s
    work = min(1.0, loading.cpu_s / loading.busy_s)
    growth = min(1.0, larger.build_s / larger.own_build_s / larger.factor)
    return waited_s * (1 - work * (1 - growth))


def with_workers(diagnosis: Diagnosis, num_workers: int, factor: float = 1.0) -> float | None:
    """Seconds of a step with `num_workers` workers: the slowest of workers, training step, and all processors together.

    The time of the training step is that of `train_s`. The compute-only rate alone is not used, since the machine may
    have been quieter at the time. None when the loading was not observed.

    Args:
        diagnosis: The figures.
        num_workers: Workers, at least 1.
        factor: New building time over the present building time.
    """
    built_s = load_s(diagnosis)
    if built_s is None or num_workers < 1:
        return None
    hand_over_s = _hand_over_s(diagnosis)
    training_s = train_s(diagnosis, factor) + _take_s(diagnosis)
    # With workers the processor time of the training process has the process's own share of handing over.
    num_new = 1 if diagnosis.natural.num_workers else 2
    all_cpu_s = train_cpu_s(diagnosis) + num_new * hand_over_s + factor * load_cpu_s(diagnosis)
    working_s = (factor * built_s + hand_over_s) / num_workers
    return max(working_s, training_s, hand_over_s, all_cpu_s / max(1.0, diagnosis.usable_cpus))


def _hand_over_s(diagnosis: Diagnosis) -> float:
    """Seconds to hand the batches of one step over: as measured on this machine, else by the usual figures."""
    tried, loader = diagnosis.observation.storage, diagnosis.facts.loader
    if tried is not None and tried.hand_over_s is not None:
        per_batch_s = tried.hand_over_s
    else:
        per_batch_s = HAND_OVER_S + (loader.batch_bytes if loader is not None else 0) / HAND_OVER_BYTES_PER_S
    return per_batch_s * diagnosis.facts.num_micro_batches_per_step


def _take_s(diagnosis: Diagnosis) -> float:
    """Seconds in which the training process takes the finished batches of one step.

    With workers the result is at most the observed wait, since the wait contains it.
    """
    tried = diagnosis.observation.storage
    if tried is None or tried.take_s is None:
        return _hand_over_s(diagnosis)
    take_s = tried.take_s * diagnosis.facts.num_micro_batches_per_step
    return min(take_s, wait_s(diagnosis)) if diagnosis.natural.num_workers else take_s


def with_more_threads(diagnosis: Diagnosis) -> float | None:
    """Seconds of a step whose loader has threads enough; None when the threads were not observed.

    Training and the processors, which the loader's threads share with training, are then the only bounds.
    """
    if diagnosis.observation.loading is None:
        return None
    all_cpu_s = train_cpu_s(diagnosis) + load_cpu_s(diagnosis)
    return max(train_s(diagnosis), all_cpu_s / max(1.0, diagnosis.usable_cpus))


def with_faster_loading(diagnosis: Diagnosis, factor: float) -> float | None:
    """Seconds of a step when building a batch takes `factor` times as long; None when the loading was not observed.

    Args:
        diagnosis: The figures.
        factor: New building time over the present building time, at most 1.
    """
    step_s, num_workers = diagnosis.step_s, diagnosis.natural.num_workers
    if diagnosis.observation.loading is None:
        return None
    if num_workers == 0:
        return step_s - wait_s(diagnosis) * (1 - factor)
    now_s, then_s = with_workers(diagnosis, num_workers), with_workers(diagnosis, num_workers, factor)
    # What the formula leaves out of the present step, or adds to it, is the same part of the later step.
    return step_s * then_s / now_s if now_s is not None and then_s is not None else None


def gain_of(diagnosis: Diagnosis, then_s: float | None) -> float | None:
    """The gain of a step that takes `then_s` seconds; None for an unknown time or a gain below LEAST_GAIN."""
    if then_s is None or then_s <= 0:
        return None
    gain = min(MAX_GAIN, diagnosis.step_s / then_s)
    return gain if gain >= LEAST_GAIN else None
