"""Simulated training jobs: a rate and a peak for every setting, with the couplings that real jobs show.

A family of random workloads: bound by the loader, by compute, by memory or by overhead, on an accelerator or on a CPU
whose cores the loader and the training share. The constants are drawn around magnitudes that were measured with real
scripts; the plan is not told any of them.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, TrialResult
from autotune.settings import GROUP_OF_FIELD, OmpWaitPolicy, Precision, Settings
from autotune.space.space import DOMAINS, FREE_BATCH_SIZES, SPLIT, SearchSpace

MIB = 1024**2
KINDS = ("loader", "compute", "memory", "overhead")


@dataclass
class Workload:
    """One job on one machine."""

    space: SearchSpace
    cpus: int
    cap_bytes: int
    costs: dict[str, float]
    noise: float = 0.025
    outlier_share: float = 0.03
    name: str = ""
    runs: list[Settings] = field(default_factory=list)

    @property
    def is_cpu(self) -> bool:
        return self.space.device_is_cpu

    # --- what is true of a setting

    def compute_rate(self, settings: Settings) -> float:
        """Samples per second without the loader."""
        return 1 / (self._cpu_compute_s(settings) if self.is_cpu else self._gpu_compute_s(settings))

    def rate(self, settings: Settings) -> float:
        """Samples per second of the whole job."""
        return self._cpu_rate(settings) if self.is_cpu else self._gpu_rate(settings)

    def peak_bytes(self, settings: Settings) -> float:
        cost = self.costs
        samples = settings.batch_size or 1
        activations = cost["activation_bytes"] * samples * cost.get(f"memory_{settings.precision}", 1.0)
        if settings.compile:
            activations *= cost["memory_compile"]
        peak = cost["model_bytes"] + activations
        if self.is_cpu:
            queue = settings.num_workers * settings.prefetch_factor * samples * self.space.sample_bytes
            return peak + settings.num_workers * cost["worker_bytes"] + queue
        if settings.grad_accum_steps > 1:
            peak += 0.02 * cost["model_bytes"]
        if settings.cudnn_benchmark:
            peak *= 1.01
        return peak

    def is_feasible(self, settings: Settings) -> bool:
        return round(self.peak_bytes(settings)) <= self.cap_bytes

    # --- an accelerator: two machines that overlap

    def _gpu_compute_s(self, settings: Settings) -> float:
        cost, samples = self.costs, settings.batch_size or 1
        device = cost["device_s"] * (samples + cost["half_batch"]) * cost[settings.precision]
        launch = cost["launch_s"]
        if settings.channels_last:
            device *= cost["channels_last"] if settings.precision != Precision.FP32 else cost["channels_last_fp32"]
        if settings.cudnn_benchmark:
            device *= cost["cudnn_benchmark"]
        if settings.compile:
            device *= cost["compile_device"]
            launch *= cost["compile_launch"]
        copy = cost["copy_s"] * samples * (0.5 if settings.pin_memory else 1.0)
        if settings.non_blocking and settings.pin_memory:
            copy *= 0.2
        if settings.stream_prefetch:
            copy *= 0.1
        micro_step = max(device, launch) + 0.1 * min(device, launch) + copy
        step = settings.grad_accum_steps * micro_step + cost["optimizer_s"]
        return step / (samples * settings.grad_accum_steps)

    def _gpu_rate(self, settings: Settings) -> float:
        cost = self.costs
        compute = self._gpu_compute_s(settings)
        if settings.num_workers == 0:
            return 1 / (compute + cost["load_s"])
        workers = settings.num_workers
        useful = (
            min(workers, self.cpus - 0.5) if workers <= self.cpus else (self.cpus - 0.5) * 0.97 ** (workers - self.cpus)
        )
        load = cost["load_s"] / useful * (cost["pin"] if settings.pin_memory else 1.0)
        compute += cost["hand_over_s"]
        if workers > self.cpus - 1:
            compute *= 1 + 0.04 * (workers - self.cpus + 1)
        jitter = cost["jitter"] / (1 + workers * settings.prefetch_factor / 8)
        return 1 / (max(load, compute) + jitter * min(load, compute))

    def data_wait_fraction(self, settings: Settings) -> float:
        """Share of the time inside the loader's `next()`; on a CPU most of the cost of loading is elsewhere."""
        stalled = max(0.0, 1 - self.rate(settings) / self.compute_rate(settings))
        if settings.num_workers == 0:
            return stalled
        if self.is_cpu:
            return 0.3 * stalled
        return stalled if settings.num_workers < self.cpus else 0.7 * stalled

    # --- a CPU: loader, training and spinning threads share the cores

    def _cpu_compute_s(self, settings: Settings) -> float:
        cost, samples = self.costs, settings.batch_size or 1
        threads = settings.intra_op_threads
        parallel = cost["parallel"] / min(threads, self.cpus) + (1 - cost["parallel"])
        if threads > self.cpus:
            parallel *= 1 + 0.2 * (threads - self.cpus)
        work = cost["device_s"] * cost[settings.precision] * parallel
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

    def _cpu_rate(self, settings: Settings) -> float:
        cost = self.costs
        compute = self._cpu_compute_s(settings)
        if settings.num_workers == 0:
            return 1 / (compute + cost["load_s"])
        workers, threads = settings.num_workers, settings.intra_op_threads
        compute += cost["hand_over_s"]
        spin = 0.3 if settings.omp_wait_policy == OmpWaitPolicy.PASSIVE else 1.0
        low, high = 0.0, 1 / compute
        for _ in range(30):  # the rate at which busy workers and the contended training agree
            rate = (low + high) / 2
            busy = min(workers, rate * cost["load_s"])
            busy_threads = 1 + (threads - 1) * (cost["parallel"] * (1 - spin) + spin)
            overload = max(0.0, busy + busy_threads - self.cpus) / self.cpus
            contended = compute * (1 + overload * (1 + cost["contention"] * (0.3 + 0.7 * spin) * (threads - 1)))
            load = cost["load_s"] * (1 + 0.5 * overload) / workers
            jitter = cost["jitter"] / (1 + workers * settings.prefetch_factor / 4)
            if rate * (max(contended, load) + jitter * min(contended, load)) > 1:
                high = rate
            else:
                low = rate
        restart = 1.0 if settings.persistent_workers else 1 - cost["restart_loss"]
        return low * restart

    # --- the whole grid

    @cached_property
    def grid(self) -> tuple[Any, ...]:
        """Everything that may be tried, as plain attributes: real Settings check themselves, which takes a while."""
        names = self.space.searched
        own = {name: getattr(self.space.natural, name) for name in GROUP_OF_FIELD}
        points = []
        for row in itertools.product(*(self.space.allowed[name] for name in names)):
            values = {**own, **dict(zip(names, row, strict=True))}
            if SPLIT in values:
                size = self.space.divisors[values.pop(SPLIT)]
                values |= {"batch_size": size, "grad_accum_steps": self.space.batch_per_device // size}
            points.append(SimpleNamespace(**values))
        return tuple(points)

    @cached_property
    def best_rate(self) -> float:
        return max(self.rate(point) for point in self.grid if self.is_feasible(point))

    def regret(self, settings: Settings) -> float:
        """Share of the best rate that these settings give away; 1 where they need more than the cap."""
        return 1 - self.rate(settings) / self.best_rate if self.is_feasible(settings) else 1.0

    # --- one trial

    def run(self, settings: Settings, seed: int = 0, incumbent: float | None = None) -> TrialResult:
        """What a noisy trial would report; the same settings and seed report the same.

        With an incumbent a trial that is clearly slower is stopped early, and only its bound is known.
        """
        self.runs.append(settings)
        rng = random.Random(f"{seed} {sorted(settings.to_dict().items(), key=str)}")
        peak = round(self.peak_bytes(settings))
        if peak > self.cap_bytes:
            return TrialResult(outcome=Outcome.OUT_OF_MEMORY, reason="more than the cap", peak_memory_bytes=peak)
        true, compute = self.rate(settings), self.compute_rate(settings)
        seen = true * rng.lognormvariate(0, self.noise) * (0.9 if rng.random() < self.outlier_share else 1.0)
        low, high = seen * (1 - 2 * self.noise), seen * (1 + 2 * self.noise)
        is_slow = incumbent is not None and high < 0.97 * incumbent
        measurement = Measurement(
            samples_per_second=seen,
            low=low,
            high=high,
            is_converged=True,
            is_nonstationary=False,
            is_primed=False,
            num_blocks=8,
            window_s=2.0,
            data_wait_fraction=self.data_wait_fraction(settings),
            compute_samples_per_second=compute * rng.lognormvariate(0, 0.6 * self.noise),
        )
        outcome = Outcome.RACED_OUT if is_slow else Outcome.OK
        return TrialResult(outcome=outcome, measurement=measurement, peak_memory_bytes=peak)


def divisors(number: int) -> tuple[int, ...]:
    return tuple(value for value in range(1, number + 1) if number % value == 0)


def make_space(
    natural: Settings, allowed: dict[str, tuple[Any, ...]], *, device_is_cpu: bool, sample_bytes: float = 0.0
) -> SearchSpace:
    """A space over all domains in which the parameters that are not named keep the script's own value."""
    domains: dict[str, tuple[Any, ...]] = dict(DOMAINS)
    batch = None
    if "batch_size" in allowed:
        domains["batch_size"] = FREE_BATCH_SIZES
    else:
        batch = (natural.batch_size or 1) * natural.grad_accum_steps
        domains[SPLIT] = tuple(range(len(divisors(batch))))
    plain = natural.to_dict()
    own = {
        name: (divisors(batch).index(natural.batch_size or 1) if name == SPLIT and batch else plain.get(name),)
        for name in domains
    }
    return SearchSpace(
        natural=natural,
        domains=domains,
        allowed={**own, **allowed},
        refused=(),
        device_is_cpu=device_is_cpu,
        batch_per_device=batch,
        sample_bytes=sample_bytes,
    )


def random_workload(seed: int, device: str | None = None) -> Workload:
    """A workload of the family; every seed is another job on another machine."""
    rng = random.Random(f"workload {seed}")
    kind = KINDS[seed % len(KINDS)]
    device = device or ("cpu" if seed // len(KINDS) % 2 == 0 else "cuda")
    return _cpu_workload(rng, kind, seed) if device == "cpu" else _gpu_workload(rng, kind, seed)


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _choose_cap(rng: random.Random, workload: Workload) -> None:
    """A cap under which a tenth to two thirds of the space is infeasible; mostly the script's own settings fit.

    Where they would not, the script has a smaller micro-batch of its own, or the cap is raised to it.
    """
    peaks = sorted(workload.peak_bytes(point) for point in workload.grid)
    share = rng.uniform(0.1, 0.66)
    workload.cap_bytes = int(1.02 * peaks[int((1 - share) * (len(peaks) - 1))])
    if rng.random() < 0.1:
        return
    natural = workload.space.natural
    sizes = sorted({point.batch_size for point in workload.grid if point.batch_size < natural.batch_size})
    while not workload.is_feasible(natural) and sizes:
        size = sizes.pop()
        steps = workload.space.batch_per_device // size if workload.space.batch_per_device else 1
        natural = replace(natural, batch_size=size, grad_accum_steps=steps)
    if not workload.is_feasible(natural):
        natural = workload.space.natural
        workload.cap_bytes = int(1.05 * workload.peak_bytes(natural))
    workload.space = replace(workload.space, natural=natural)


def _cpu_workload(rng: random.Random, kind: str, seed: int) -> Workload:
    cpus = rng.choice((2, 2, 2, 4, 8))
    batch = rng.choice((16, 32, 48, 64, 128))
    accumulation = rng.choice((1, 1, 1, 2, 4))
    workers = rng.choice((0, 0, 0, 2))
    natural = Settings(
        num_workers=workers, batch_size=batch // accumulation, grad_accum_steps=accumulation, intra_op_threads=cpus
    )
    allowed: dict[str, tuple[Any, ...]] = {
        "num_workers": tuple(value for value in DOMAINS["num_workers"] if int(value) <= 2 * cpus and int(value) <= 8),
        "intra_op_threads": tuple(value for value in DOMAINS["intra_op_threads"] if int(value) <= cpus),
        "omp_wait_policy": DOMAINS["omp_wait_policy"],
        "prefetch_factor": DOMAINS["prefetch_factor"],
        "persistent_workers": (False, True),
        "precision": ("fp32", "bf16"),
    }
    if rng.random() < 0.7:
        allowed[SPLIT] = tuple(range(len(divisors(batch))))
    if rng.random() < 0.5:
        allowed["channels_last"] = (False, True)
    if rng.random() < 0.3:
        allowed["compile"] = (False, True)
    device_s = _log_uniform(rng, 2e-4, 5e-3) * cpus
    bound = {"loader": (0.7, 4.0), "compute": (0.01, 0.2), "memory": (0.1, 1.0), "overhead": (0.005, 0.3)}[kind]
    parallel = rng.uniform(0.6, 0.97)
    compute_s = device_s * (parallel / cpus + 1 - parallel)
    launch = rng.uniform(0.02, 0.2) if kind != "overhead" else rng.uniform(1, 6)
    activation = _log_uniform(rng, 0.5, 8) * MIB
    space = make_space(natural, allowed, device_is_cpu=True, sample_bytes=_log_uniform(rng, 1e3, 6e5))
    costs = {
        "device_s": device_s,
        "parallel": parallel,
        "load_s": compute_s * rng.uniform(*bound),
        "launch_s": launch * compute_s * batch / accumulation,
        "optimizer_s": rng.uniform(0.01, 0.1) * compute_s * batch,
        "hand_over_s": rng.uniform(0.005, 0.05) * compute_s * (1 if kind != "overhead" else 10),
        "jitter": rng.choice((0.02, 0.05, 0.2)) * rng.uniform(0.5, 1.0),
        "contention": rng.uniform(0.3, 2.0),
        "wake_up": rng.uniform(1.0, 1.5),
        "restart_loss": rng.choice((0.0, 0.0, 0.03, 0.3)),
        "cache_samples": rng.choice((4, 8, 16, 32, 1024)),
        "cache_loss": rng.uniform(0, 0.3),
        "fp32": 1.0,
        "bf16": rng.choice((3.5, 3.5, 2.0, 0.95, 0.6)),
        "channels_last": rng.uniform(0.8, 1.15),
        "compile_device": rng.uniform(0.75, 1.05),
        "compile_launch": rng.uniform(0.4, 1.0),
        "model_bytes": rng.uniform(200, 800) * MIB,
        "activation_bytes": activation,
        "memory_compile": rng.uniform(0.8, 1.0),
        "memory_bf16": rng.uniform(0.7, 1.1),
        "worker_bytes": rng.uniform(40, 250) * MIB,
    }
    workload = Workload(space=space, cpus=cpus, cap_bytes=1, costs=costs, name=f"cpu {kind} {seed}")
    _choose_cap(rng, workload)
    return workload


def _gpu_workload(rng: random.Random, kind: str, seed: int) -> Workload:
    cpus = rng.choice((4, 8, 12, 16))
    is_free = rng.random() < 0.4
    batch = rng.choice((64, 128, 256, 512))
    accumulation = 1 if is_free else rng.choice((1, 1, 4, 8))
    micro = batch // accumulation
    natural = Settings(
        num_workers=rng.choice((0, 0, 2, 4)), batch_size=micro, grad_accum_steps=accumulation, intra_op_threads=4
    )
    allowed: dict[str, tuple[Any, ...]] = {
        "num_workers": tuple(value for value in DOMAINS["num_workers"] if int(value) <= 2 * cpus),
        "prefetch_factor": DOMAINS["prefetch_factor"],
        "pin_memory": (False, True),
        "precision": rng.choice((("fp32", "tf32", "bf16", "fp16"), ("fp32", "fp16"), ("fp32", "tf32", "bf16", "fp16"))),
        "compile": (False, True),
        "non_blocking": (False, True),
    }
    third = rng.choice(("channels_last", "cudnn_benchmark", "stream_prefetch"))
    allowed[third] = (False, True)
    if is_free:
        allowed["batch_size"] = tuple(size for size in FREE_BATCH_SIZES if 8 <= size <= 2048)
    else:
        allowed[SPLIT] = tuple(index for index, size in enumerate(divisors(batch)) if size >= 4)
    device_s = _log_uniform(rng, 2e-5, 2e-3)
    bound = {"loader": (1.0, 4.0), "compute": (0.02, 0.3), "memory": (0.1, 0.8), "overhead": (0.02, 0.5)}[kind]
    launch = rng.uniform(0.05, 0.5) if kind != "overhead" else rng.uniform(1, 4)
    half = {"loader": 4, "compute": 8, "memory": 48, "overhead": 24}[kind]
    bf16 = rng.choice((0.45, 0.6, 0.75, 0.95))
    half_memory = rng.uniform(0.55, 0.8)
    space = make_space(natural, allowed, device_is_cpu=False, sample_bytes=6e5)
    costs = {
        "device_s": device_s,
        "half_batch": half * rng.uniform(0.5, 1.5),
        "launch_s": launch * device_s * micro,
        "load_s": device_s * rng.uniform(*bound) * min(cpus, 8),
        "copy_s": device_s * rng.uniform(0.01, 0.15),
        "optimizer_s": rng.uniform(0.01, 0.1) * device_s * batch,
        "hand_over_s": rng.uniform(0.0, 0.03) * device_s,
        "jitter": rng.choice((0.02, 0.05, 0.25)) * rng.uniform(0.5, 1.0),
        "pin": rng.uniform(1.0, 1.15),
        "fp32": 1.0,
        "tf32": rng.uniform(bf16, 1.0),
        "bf16": bf16,
        "fp16": bf16 * rng.uniform(0.95, 1.06),
        "channels_last": rng.uniform(0.7, 1.05),
        "channels_last_fp32": rng.uniform(0.9, 1.2),
        "cudnn_benchmark": rng.uniform(0.85, 1.02),
        "compile_device": rng.uniform(0.7, 1.05),
        "compile_launch": rng.uniform(0.3, 0.8),
        "model_bytes": rng.uniform(500, 4000) * MIB,
        "activation_bytes": _log_uniform(rng, 2, 80) * MIB,
        "memory_compile": rng.uniform(0.75, 1.0),
        "memory_tf32": 1.0,
        "memory_bf16": half_memory,
        "memory_fp16": half_memory,
    }
    workload = Workload(space=space, cpus=cpus, cap_bytes=1, costs=costs, name=f"cuda {kind} {seed}")
    _choose_cap(rng, workload)
    return workload
