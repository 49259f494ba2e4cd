"""What a step would take if one thing about it were changed: the few formulas that all rules share. Pure."""

from __future__ import annotations

from autotune.model.diagnosis import Diagnosis
from autotune.model.observation import LargerBatch

HAND_OVER_S = 0.0005
"""What taking a batch from a worker costs the process that trains: a queue, a pickle and a mapping of shared memory.
Seen between 0.2 and 0.6 ms; it is what makes small steps slower with any worker."""
HAND_OVER_BYTES_PER_S = 4e9
LEAST_GAIN, MAX_GAIN = 1.05, 50.0
"""Less is within what a single run can be off; and nothing that was measured in one supports a promise of more."""


def load_s(diagnosis: Diagnosis) -> float | None:
    """Seconds of building the batches of one step, in one process; None where nobody saw."""
    loading = diagnosis.observation.loading
    if loading is None:
        return None
    if diagnosis.natural.num_workers == 0:
        return wait_s(diagnosis)  # nobody was looking then
    return loading.busy_s / loading.num_batches * diagnosis.facts.num_micro_batches_per_step


def load_cpu_s(diagnosis: Diagnosis) -> float:
    """Processor seconds of it, 0 where nobody saw."""
    loading = diagnosis.observation.loading
    if loading is None:
        return 0.0
    return min(1.0, loading.cpu_s / loading.busy_s) * (load_s(diagnosis) or 0.0)


def train_cpu_s(diagnosis: Diagnosis) -> float:
    """Processor seconds that the process that trains takes for a step, all of its threads, its own loading left out."""
    observed = diagnosis.observation
    if observed.cpu_wall_s <= 0:
        return 0.0
    all_s = observed.main_cpu_s / observed.cpu_wall_s * diagnosis.step_s
    return max(0.0, all_s - load_cpu_s(diagnosis)) if diagnosis.natural.num_workers == 0 else all_s


def wait_s(diagnosis: Diagnosis) -> float:
    """Seconds of one step inside the loader's `next()`."""
    return diagnosis.data_wait_fraction * diagnosis.step_s


def wait_with_larger_batch(diagnosis: Diagnosis, larger: LargerBatch) -> float:
    """Seconds of waiting for as many samples as a step has now, with a batch so many times as large.

    Where the process that trains builds its batches, some of the work is once per batch. Time without work, as in
    waiting for a disk, goes with the samples; so does what workers build.
    """
    waited_s, loading = wait_s(diagnosis), diagnosis.observation.loading
    if loading is None or larger.own_build_s is None or larger.build_s is None:
        return waited_s
    work = min(1.0, loading.cpu_s / loading.busy_s)
    growth = min(1.0, larger.build_s / larger.own_build_s / larger.factor)
    return waited_s * (1 - work * (1 - growth))


def with_workers(diagnosis: Diagnosis, num_workers: int) -> float | None:
    """Seconds of a step with so many workers: the slowest of workers, training step, and all processors together.

    What is not waited for stays: the compute-only rate was taken at another moment, which may have been a quieter one.
    None where the loading is not known.
    """
    built_s = load_s(diagnosis)
    if built_s is None or num_workers < 1:
        return None
    loader = diagnosis.facts.loader
    bytes_per_step = (loader.batch_bytes if loader is not None else 0) * diagnosis.facts.num_micro_batches_per_step
    hand_over_s = HAND_OVER_S * diagnosis.facts.num_micro_batches_per_step + bytes_per_step / HAND_OVER_BYTES_PER_S
    train_s = diagnosis.step_s - wait_s(diagnosis) + hand_over_s
    all_cpu_s = train_cpu_s(diagnosis) + hand_over_s + load_cpu_s(diagnosis)
    return max(built_s / num_workers, train_s, all_cpu_s / max(1.0, diagnosis.usable_cpus))


def with_faster_loading(diagnosis: Diagnosis, factor: float) -> float | None:
    """Seconds of a step when building a batch takes so many times as long as now; None where nobody saw it.

    Args:
        diagnosis: The figures.
        factor: At most 1.
    """
    built_s = load_s(diagnosis)
    if built_s is None:
        return None
    step_s, waited_s = diagnosis.step_s, wait_s(diagnosis)
    if diagnosis.natural.num_workers == 0:
        return step_s - waited_s * (1 - factor)
    # With workers the step waits for them: as long as it does, it takes what they take.
    return max(step_s - waited_s, step_s * factor)


def gain_of(diagnosis: Diagnosis, then_s: float | None) -> float | None:
    """The gain of a step that takes so long instead; None where it is not known or not worth a word."""
    if then_s is None or then_s <= 0:
        return None
    gain = min(MAX_GAIN, diagnosis.step_s / then_s)
    return gain if gain >= LEAST_GAIN else None
