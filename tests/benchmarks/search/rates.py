"""Seconds of training and bytes of memory that settings cost an imagined job: the two machines of the simulation.

On an accelerator loader and training overlap; on a CPU they share the cores. All times are per sample unless said
otherwise. `cores` is what the machine really gives, which can be less than what it says it has: hyperthreads share a
core, quotas are rounded, neighbours take their part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autotune.settings import OmpWaitPolicy, Precision

HALF = (Precision.BF16, Precision.FP16)
Costs = Mapping[str, float]


def peak_bytes(cost: Costs, settings: Any, *, is_cpu: bool, sample_bytes: float) -> float:
    """Peak memory: the line of the activations, or the optimizer's own peak where the micro-batch is small."""
    samples = settings.batch_size
    width = cost["memory_half"] if settings.precision in HALF else 1.0
    activations = cost["activation_bytes"] * samples * width * (cost["memory_compile"] if settings.compile else 1.0)
    peak = cost["model_bytes"] + max(activations, cost["optimizer_bytes"])
    if settings.grad_accum_steps > 1:
        peak += cost["gradient_bytes"]
    if is_cpu:
        queue = settings.num_workers * settings.prefetch_factor * samples * sample_bytes
        return peak + settings.num_workers * cost["worker_bytes"] + queue
    return peak * (cost["workspace"] if settings.cudnn_benchmark else 1.0)


def accelerator_compute_s(cost: Costs, settings: Any) -> float:
    """On a cached batch: the device's time or the host's launches, whichever is longer, and the copy."""
    samples = settings.batch_size
    device = cost["device_s"] * (samples + cost["half_batch"]) * cost[settings.precision]
    if samples > cost["large_batch"]:
        device *= 1 + cost["large_batch_loss"] * min(1.0, math.log2(samples / cost["large_batch"]) / 3)
    launch = cost["launch_s"]
    if settings.precision in HALF:
        launch *= cost["autocast_launch"]
    if settings.channels_last:
        device *= cost["channels_last" if settings.precision in HALF else "channels_last_wide"]
    if settings.cudnn_benchmark:
        device *= cost["cudnn_benchmark"]
    if settings.compile:
        device *= cost["compile_device"]
        launch *= cost["compile_launch"]
    copy = cost["copy_s"] * samples * (0.5 if settings.pin_memory else 1.0)
    if settings.pin_memory and settings.non_blocking:
        copy *= 0.2
    micro_step = max(device, launch) + 0.1 * min(device, launch) + copy
    return (settings.grad_accum_steps * micro_step + cost["optimizer_s"]) / (samples * settings.grad_accum_steps)


def accelerator_rate(cost: Costs, settings: Any, cores: float) -> float:
    """Samples per second of the whole job."""
    return 1 / accelerator_step(cost, settings, cores)[0]


def accelerator_step(cost: Costs, settings: Any, cores: float) -> tuple[float, float]:
    """Seconds per sample of the whole job, and of that the wait inside the loader's `next()`."""
    compute, workers = accelerator_compute_s(cost, settings), settings.num_workers
    if workers == 0:
        return compute + cost["load_s"], cost["load_s"]
    useful = min(workers, cores) * (1.0 if workers <= cores else 0.98 ** (workers - cores))
    load = max(cost["load_s"] / useful, cost["storage_s"])
    if settings.pin_memory:  # a thread of the training process that copies, under the same interpreter lock
        load *= cost["pin_load"]
        compute *= cost["pin_compute"]
    compute += cost["hand_over_s"]
    if workers > cores - 1:  # the workers take the core on which the training process launches
        compute *= 1 + cost["steal"] * (workers - cores + 1)
    jitter = cost["jitter"] / (1 + workers * settings.prefetch_factor / 8) * min(load, compute)
    return max(load, compute) + jitter, max(0.0, load - compute) + jitter + cost["hand_over_s"]


def cpu_compute_s(cost: Costs, settings: Any, cores: float) -> float:
    """On a cached batch: parallel and serial work, overhead per micro-step, and the optimizer."""
    samples, threads = settings.batch_size, settings.intra_op_threads
    work = cost["device_s"] * cost[settings.precision]
    work *= cost["parallel"] / min(threads, cores) + 1 - cost["parallel"]
    if samples > cost["cache_samples"]:
        work *= 1 + cost["cache_loss"] * min(1.0, math.log2(samples / cost["cache_samples"]) / 3)
    overhead = cost["launch_s"] * (1 + 0.1 * (threads - 1))
    if settings.channels_last:
        work *= cost["channels_last"]
    if settings.compile:
        work *= cost["compile_device"]
        overhead *= cost["compile_launch"]
    if settings.omp_wait_policy == OmpWaitPolicy.PASSIVE and threads > 1:
        overhead *= cost["wake_up"]
    step = settings.grad_accum_steps * overhead + cost["optimizer_s"]
    return work + step / (samples * settings.grad_accum_steps)


def cpu_rate(cost: Costs, settings: Any, cores: float) -> float:
    """Samples per second of the whole job: the rate at which busy workers and the training they disturb agree."""
    compute, workers, threads = cpu_compute_s(cost, settings, cores), settings.num_workers, settings.intra_op_threads
    if workers == 0:
        return 1 / (compute + cost["load_s"])
    compute += cost["hand_over_s"]
    spin = 0.3 if settings.omp_wait_policy == OmpWaitPolicy.PASSIVE else 1.0
    busy_threads = 1 + (threads - 1) * (cost["parallel"] * (1 - spin) + spin)
    jitter = cost["jitter"] / (1 + workers * settings.prefetch_factor / 4)
    low, high = 0.0, 1 / compute
    for _ in range(24):
        rate = (low + high) / 2
        busy = min(workers, rate * cost["load_s"])
        overload = max(0.0, busy + busy_threads - cores) / cores
        contended = compute * (1 + overload * (1 + cost["contention"] * (0.3 + 0.7 * spin) * (threads - 1)))
        load = max(cost["load_s"] * (1 + 0.5 * overload) / workers, cost["storage_s"])
        if rate * (max(contended, load) + jitter * min(contended, load)) > 1:
            high = rate
        else:
            low = rate
    return low * (1.0 if settings.persistent_workers else 1 - cost["restart_loss"])
