"""The family of random workloads: every seed is another job on another machine.

Bound by the loader, by compute, by memory or by overhead, on an accelerator or on a CPU; nine parameters each; a tenth
to two thirds of the settings need more than the cap. Magnitudes are those that were measured with real scripts. The
plan is told none of them: not the cores that the machine really gives, nor whether compile, pinning, channels_last, a
large batch, more workers or a narrow format help or hurt here.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from autotune.settings import DOMAINS, Settings
from autotune.space.search_space import FREE_BATCH_SIZES, SPLIT, SearchSpace
from autotune.units import MIB
from tests.benchmarks.search.workload import Workload

KINDS = ("loader", "compute", "memory", "overhead")


def random_workload(seed: int, device: str | None = None) -> Workload:
    """The workload of a seed; its kind goes round with the seed, its device, unless given, with every fourth."""
    device = device or ("cpu" if seed // len(KINDS) % 2 == 0 else "cuda")
    kind = KINDS[seed % len(KINDS)]
    rng = random.Random(f"{device} {kind} {seed}")
    workload = (_on_cpu if device == "cpu" else _on_accelerator)(rng, kind, f"{device} {kind} {seed}")
    _choose_cap(rng, workload)
    return workload


def make_space(
    script_settings: Settings, allowed: dict[str, tuple[Any, ...]], *, device_is_cpu: bool, sample_bytes: float = 0.0
) -> SearchSpace:
    """A space over all domains in which the parameters that are not named keep the script's own value."""
    domains: dict[str, tuple[Any, ...]] = dict(DOMAINS)
    batch = None
    if "batch_size" in allowed:
        domains["batch_size"] = FREE_BATCH_SIZES
    else:
        batch = (script_settings.batch_size or 1) * script_settings.grad_accum_steps
        domains[SPLIT] = tuple(range(len(divisors(batch))))
    plain = script_settings.to_dict()
    own = {
        name: (divisors(batch).index(script_settings.batch_size or 1) if name == SPLIT and batch else plain.get(name),)
        for name in domains
    }
    return SearchSpace(
        script_settings=script_settings,
        domains=domains,
        allowed={**own, **allowed},
        refused=(),
        device_is_cpu=device_is_cpu,
        batch_per_device=batch,
        sample_bytes=sample_bytes,
    )


def divisors(number: int) -> tuple[int, ...]:
    return tuple(value for value in range(1, number + 1) if number % value == 0)


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _choose_cap(rng: random.Random, workload: Workload) -> None:
    """A cap over which a tenth to two thirds of the space lies; mostly the script's own settings fit, with some room.

    Where they would not, the script has a smaller micro-batch of its own, or the cap is raised to it.
    """
    peaks = sorted(workload.peak_bytes(point) for point in workload.grid())
    share, room = rng.uniform(0.1, 0.66), rng.uniform(1.0, 1.6)
    largest_below = peaks[int((1 - share) * (len(peaks) - 1))]
    # A cap is not made for a cell: it lies anywhere between two peaks, on average in the middle.
    workload.cap_bytes = int((largest_below + next(peak for peak in peaks if peak > largest_below)) / 2)
    if rng.random() < 0.1:
        return
    script_settings, space = workload.space.script_settings, workload.space
    values = space.allowed[SPLIT if SPLIT in space.domains else "batch_size"]
    sizes = [space.divisors[value] for value in values] if SPLIT in space.domains else list(values)
    sizes = sorted(size for size in sizes if size < (script_settings.batch_size or 0))
    while room * workload.peak_bytes(script_settings) > workload.cap_bytes and sizes:
        size = sizes.pop()
        steps = space.batch_per_device // size if space.batch_per_device else 1
        script_settings = replace(script_settings, batch_size=size, grad_accum_steps=steps)
    workload.cap_bytes = max(workload.cap_bytes, int(1.02 * workload.peak_bytes(script_settings)))
    workload.space = replace(space, script_settings=script_settings)


def _on_cpu(rng: random.Random, kind: str, name: str) -> Workload:
    cpus = rng.choice((2, 2, 2, 4, 8))
    cores = cpus * rng.choice((1.0, 1.0, 0.9, 0.75))
    batch, accumulation = rng.choice((16, 32, 48, 64, 128)), rng.choice((1, 1, 1, 2, 4))
    micro = batch // accumulation
    script_settings = Settings(
        num_workers=rng.choice((0, 0, 0, 2)), batch_size=micro, grad_accum_steps=accumulation, intra_op_threads=cpus
    )
    allowed: dict[str, tuple[Any, ...]] = {
        "num_workers": tuple(value for value in DOMAINS["num_workers"] if int(value) <= 2 * cpus),
        "intra_op_threads": tuple(value for value in DOMAINS["intra_op_threads"] if int(value) <= cpus),
        "omp_wait_policy": DOMAINS["omp_wait_policy"],
        "prefetch_factor": DOMAINS["prefetch_factor"],
        "persistent_workers": (False, True),
        "precision": ("fp32", "bf16"),
        SPLIT: tuple(range(len(divisors(batch)))),
        "channels_last": (False, True),
        "compile": (False, True),
    }
    device_s = _log_uniform(rng, 2e-4, 5e-3) * cpus
    parallel = rng.uniform(0.6, 0.97)
    compute_s = device_s * (parallel / cpus + 1 - parallel)
    load = {"loader": (0.7, 4.0), "compute": (0.01, 0.2), "memory": (0.1, 1.0), "overhead": (0.005, 0.3)}[kind]
    load_s = compute_s * rng.uniform(*load)
    launch = rng.uniform(1, 6) if kind == "overhead" else rng.uniform(0.02, 0.2)
    model_bytes = rng.uniform(200, 800) * MIB
    activation_bytes = model_bytes * _log_uniform(rng, 1.0, 6.0) / batch
    costs = {
        "device_s": device_s,
        "parallel": parallel,
        "load_s": load_s,
        "storage_s": load_s * rng.choice((0.0, 0.0, 0.0, 0.3)),
        "launch_s": launch * compute_s * micro,
        "optimizer_s": rng.uniform(0.01, 0.1) * compute_s * batch,
        "hand_over_s": rng.uniform(0.005, 0.05) * compute_s * (10 if kind == "overhead" else 1),
        "jitter": rng.choice((0.02, 0.05, 0.2)) * rng.uniform(0.5, 1.0),
        "contention": rng.uniform(0.3, 2.0),
        "wake_up": rng.uniform(1.0, 1.5),
        "restart_loss": rng.choice((0.0, 0.0, 0.03, 0.3)),
        "cache_samples": rng.choice((4, 8, 16, 32, 1024)),
        "cache_loss": rng.uniform(0, 0.3),
        "fp32": 1.0,
        "bf16": rng.choice((3.5, 3.5, 2.0, 0.95, 0.6)),
        "channels_last": rng.uniform(0.8, 1.15),
        "compile_device": rng.uniform(0.75, 1.15),
        "compile_launch": rng.uniform(0.4, 1.2),
        "model_bytes": model_bytes,
        "optimizer_bytes": model_bytes * rng.choice((0.0, 0.05, 0.2)),
        "gradient_bytes": model_bytes * rng.uniform(0.0, 0.1),
        "activation_bytes": activation_bytes,
        "memory_compile": rng.uniform(0.8, 1.05),
        "memory_half": rng.uniform(0.6, 1.1),
        "worker_bytes": rng.uniform(40, 250) * MIB,
    }
    space = make_space(script_settings, allowed, device_is_cpu=True, sample_bytes=_log_uniform(rng, 1e3, 6e5))
    return Workload(name=name, space=space, usable_cpus=cpus, cores=cores, cap_bytes=1, costs=costs)


def _on_accelerator(rng: random.Random, kind: str, name: str) -> Workload:
    cpus = rng.choice((4, 8, 12, 16))
    cores = cpus * rng.choice((1.0, 0.9, 0.7, 0.55))
    is_free = rng.random() < 0.4
    batch, accumulation = rng.choice((64, 128, 256, 512)), 1 if is_free else rng.choice((1, 1, 4, 8))
    micro = batch // accumulation
    script_settings = Settings(
        num_workers=rng.choice((0, 0, 2, 4)),
        pin_memory=rng.random() < 0.3,
        batch_size=micro,
        grad_accum_steps=accumulation,
        intra_op_threads=4,
    )
    has_units = rng.random() < 0.85
    allowed: dict[str, tuple[Any, ...]] = {
        "num_workers": tuple(value for value in DOMAINS["num_workers"] if int(value) <= 2 * cpus),
        "prefetch_factor": DOMAINS["prefetch_factor"],
        "pin_memory": (False, True),
        "precision": DOMAINS["precision"] if has_units else ("fp32", "fp16"),
        "compile": (False, True),
        "non_blocking": (False, True),
        "channels_last": (False, True),
        "cudnn_benchmark": (False, True),
    }
    if is_free:
        allowed["batch_size"] = tuple(size for size in FREE_BATCH_SIZES if 8 <= size <= 2048)
    else:
        allowed[SPLIT] = tuple(index for index, size in enumerate(divisors(batch)) if size >= 4)
    device_s = _log_uniform(rng, 2e-5, 2e-3)
    load = {"loader": (1.0, 4.0), "compute": (0.02, 0.3), "memory": (0.1, 0.8), "overhead": (0.02, 0.5)}[kind]
    load_s = device_s * rng.uniform(*load) * min(cpus, 8)
    launch = rng.uniform(1, 4) if kind == "overhead" else rng.uniform(0.05, 0.5)
    half_batch = {"loader": 4, "compute": 8, "memory": 48, "overhead": 24}[kind]
    bf16, model_bytes = rng.choice((0.45, 0.6, 0.75, 0.95)), rng.uniform(500, 4000) * MIB
    costs = {
        "device_s": device_s,
        "half_batch": half_batch * rng.uniform(0.5, 1.5),
        "large_batch": rng.choice((32, 128, 512, 4096)),
        "large_batch_loss": rng.uniform(0.0, 0.15),
        "launch_s": launch * device_s * micro,
        "autocast_launch": rng.uniform(1.0, 1.4),
        "load_s": load_s,
        "storage_s": load_s / min(cpus, 8) * rng.choice((0.0, 0.0, 0.0, 1.5)),
        "copy_s": device_s * rng.uniform(0.01, 0.15),
        "optimizer_s": rng.uniform(0.01, 0.1) * device_s * batch,
        "hand_over_s": rng.uniform(0.0, 0.03) * device_s,
        "steal": rng.uniform(0.0, 0.08),
        "jitter": rng.choice((0.02, 0.05, 0.25)) * rng.uniform(0.5, 1.0),
        "pin_load": rng.uniform(1.0, 1.15),
        "pin_compute": rng.choice((1.0, 1.0, 1.05, 1.1)),
        "fp32": 1.0,
        "tf32": rng.uniform(bf16, 1.0),
        "bf16": bf16,
        "fp16": bf16 * rng.uniform(0.95, 1.06),
        "channels_last": rng.uniform(0.7, 1.1),
        "channels_last_wide": rng.uniform(0.9, 1.2),
        "cudnn_benchmark": rng.uniform(0.85, 1.05),
        "compile_device": rng.uniform(0.7, 1.12),
        "compile_launch": rng.uniform(0.3, 1.2),
        "model_bytes": model_bytes,
        "optimizer_bytes": model_bytes * rng.choice((0.0, 0.05, 0.2)),
        "gradient_bytes": model_bytes * rng.uniform(0.0, 0.1),
        "activation_bytes": model_bytes * _log_uniform(rng, 1.0, 6.0) / batch,
        "memory_compile": rng.uniform(0.75, 1.05),
        "memory_half": rng.uniform(0.55, 0.8),
        "workspace": rng.uniform(1.0, 1.05),
    }
    space = make_space(script_settings, allowed, device_is_cpu=False, sample_bytes=6e5)
    return Workload(name=name, space=space, usable_cpus=cpus, cores=cores, cap_bytes=1, costs=costs)
