"""From the probe's facts, the machine and the user's wishes to the search space, with every refusal by name."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import SearchSpaceError
from autotune.host import DeviceInfo
from autotune.model.facts import ScriptFacts
from autotune.model.maps import all_maps, mapped_settings, mapped_values
from autotune.settings import INERT_ON_CPU, Group, OmpWaitPolicy, Precision
from autotune.space.ranges import parse_range
from autotune.space.refusals import (
    NO_STREAM_PREFETCH,
    why_no_compile,
    why_no_loader,
    why_no_precision,
    why_no_samples,
    why_no_single_step,
    why_no_split,
    why_no_threads,
    why_no_workers,
)
from autotune.space.script_settings import script_settings_of
from autotune.space.search_space import (
    DOMAINS,
    FREE_ACCUMULATION,
    FREE_BATCH_SIZES,
    SPLIT,
    SearchSpace,
    Value,
    divisors_of,
)
from autotune.space.wishes import Wishes, asks_for
from autotune.spec import SearchSpec

WORKERS_PER_CPU = 2
"""Workers beyond this many per usable core only take turns."""
TF32_CAPABILITY = (8, 0)
BF16_CAPABILITY = (8, 0)
FP16_CAPABILITY = (7, 0)
"""CUDA compute capabilities from which the units for a format exist (CUDA C++ Programming Guide)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What of the machine bounds the space."""

    usable_cpus: float
    device: DeviceInfo
    shm_free_bytes: int | None
    is_linux: bool = True


def derive_space(facts: ScriptFacts, machine: Machine, spec: SearchSpec) -> SearchSpace:
    """The space of this script on this machine, narrowed as the user asked.

    Raises:
        SearchSpaceError: The user asks for a setting that is refused here, or for a value that cannot be.
    """
    return _Derivation(facts, machine, spec).space()


class _Derivation:
    """Collects what is allowed parameter by parameter; a refusal leaves the script's own value alone."""

    def __init__(self, facts: ScriptFacts, machine: Machine, spec: SearchSpec) -> None:
        self._facts, self._machine, self._spec = facts, machine, spec
        self._maps = all_maps(spec.maps, facts)
        self._mapped = mapped_settings(self._maps)
        self._script_settings = script_settings_of(facts, self._mapped)
        self._refused: dict[str, str] = {}
        self._is_fixed_batch = spec.effective_batch == "fixed"
        self._batch = self._batch_per_device()
        self._usable_cpus = machine.usable_cpus / facts.world_size
        """Of one rank: they share the machine."""

    def space(self) -> SearchSpace:
        domains, allowed = self._own_values()
        self._refuse_values(allowed)
        self._samples()
        self._batch_parameters(domains, allowed)
        wishes = Wishes(
            spec=self._spec,
            script_settings=self._script_settings,
            mapped=self._mapped,
            refused=self._refused,
            batch=self._batch,
        )
        wishes.add_knobs(dict(self._facts.knobs), domains, allowed)
        wishes.narrow(domains, allowed)
        loader = self._facts.loader
        batch_size = self._script_settings.batch_size
        return SearchSpace(
            script_settings=self._script_settings,
            domains={name: tuple(values) for name, values in domains.items()},
            allowed={name: tuple(values) for name, values in allowed.items()},
            refused=tuple(self._refused.items()),
            device_is_cpu=self._machine.device.is_cpu,
            world_size=self._facts.world_size,
            batch_per_device=self._batch if self._is_fixed_batch else None,
            shm_free_bytes=self._machine.shm_free_bytes,
            sample_bytes=loader.batch_bytes / (batch_size or 1) if loader is not None else 0.0,
        )

    def _own_values(self) -> tuple[dict[str, list[Value]], dict[str, list[Value]]]:
        """Static domains with the script's own value in each, and all of it allowed to begin with."""
        plain = self._script_settings.to_dict()
        domains = {name: list(values) for name, values in DOMAINS.items()}
        for name, values in domains.items():
            if plain[name] not in values:
                values.append(plain[name])
        return domains, {name: list(values) for name, values in domains.items()}

    # Refusals, group by group -------------------------------------------------------------------------------

    def _refuse_values(self, allowed: dict[str, list[Value]]) -> None:
        self._loader(allowed)
        self._precision(allowed)
        self._kernels(allowed)
        self._threads(allowed)
        self._device_settings(allowed)
        self._arguments(allowed)

    def _refuse(self, allowed: dict[str, list[Value]], name: str, reason: str) -> None:
        """Leaves a parameter at the script's own value."""
        allowed[name] = [self._script_settings.to_dict()[name]]
        self._refused.setdefault(name, reason)

    def _drop(self, allowed: dict[str, list[Value]], name: str, value: Value, reason: str) -> None:
        """Takes one value away, unless it is the script's own."""
        if value in allowed[name] and value != self._script_settings.to_dict()[name]:
            allowed[name].remove(value)
            self._refused.setdefault(f"{name}={value}", reason)

    def _loader(self, allowed: dict[str, list[Value]]) -> None:
        loader, names = self._facts.loader, ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
        most = max(1, round(self._usable_cpus * WORKERS_PER_CPU))
        own = self._script_settings.num_workers
        allowed["num_workers"] = [n for n in allowed["num_workers"] if isinstance(n, int) and (n <= most or n == own)]
        reason = why_no_loader(self._facts)
        if Group.LOADER in self._facts.claims:
            reason = ""
        for name in names:
            if reason and name not in self._mapped:
                self._refuse(allowed, name, reason)
        reason = why_no_workers(self._facts)
        if reason and "num_workers" not in self._mapped:
            self._refuse(allowed, "num_workers", reason)
        if loader is not None and loader.num_batches is not None and not loader.is_read_before_training:
            self._keep_workers_busy(allowed, loader.num_batches)

    def _samples(self) -> None:
        reason = why_no_samples(self._facts, is_declared=self._spec.samples_per_step is not None)
        if reason:
            self._refused["samples_per_step"] = reason

    def _keep_workers_busy(self, allowed: dict[str, list[Value]], num_batches: int) -> None:
        for value in list(allowed["num_workers"]):
            if isinstance(value, int) and value > max(1, num_batches):
                self._drop(allowed, "num_workers", value, f"an epoch has only {num_batches} batches")

    def _precision(self, allowed: dict[str, list[Value]]) -> None:
        facts, device = self._facts, self._machine.device
        if Group.PRECISION not in facts.claims and "precision" not in self._mapped:
            reason = why_no_precision(facts)
            if reason:
                self._refuse(allowed, "precision", reason)
                return
            self._other_formats(allowed)
        if device.is_cpu:
            self._drop(allowed, "precision", Precision.TF32.value, "a CPU has no TF32 units")
            self._drop(allowed, "precision", Precision.FP16.value, "fp16 on a CPU is for storage, not for speed")
            return
        for precision, least in (
            (Precision.TF32, TF32_CAPABILITY),
            (Precision.BF16, BF16_CAPABILITY),
            (Precision.FP16, FP16_CAPABILITY),
        ):
            if device.capability is not None and device.capability < least:
                reason = f"{device.name} has compute capability {device.capability[0]}.{device.capability[1]}"
                self._drop(allowed, "precision", precision.value, reason)

    def _other_formats(self, allowed: dict[str, list[Value]]) -> None:
        """Drops formats that nothing can put in force over the script's own."""
        own = self._script_settings.precision
        self._drop(allowed, "precision", Precision.FP32.value, f"the script trains in {own.value} by itself")
        if own in (Precision.BF16, Precision.FP16):
            self._drop(allowed, "precision", Precision.TF32.value, f"the script's weights are in {own.value}")
        reason = why_no_single_step(self._facts)
        if reason:
            self._drop(allowed, "precision", Precision.FP16.value, reason)

    def _kernels(self, allowed: dict[str, list[Value]]) -> None:
        facts, is_claimed = self._facts, Group.KERNELS in self._facts.claims
        if facts.num_convolutions == 0 and not is_claimed:
            self._refuse(allowed, "channels_last", "the model has no two-dimensional convolution")
        if "no_convolution" in facts.notes and not is_claimed:
            self._refuse(allowed, "cudnn_benchmark", "the model has no convolution")
        elif "deterministic" in facts.notes and not is_claimed:
            reason = "the script asks for deterministic kernels, and its search chooses others from run to run"
            self._refuse(allowed, "cudnn_benchmark", reason)
        if is_claimed or "compile" in self._mapped:
            return
        reason = why_no_compile(facts)
        if reason:
            self._refuse(allowed, "compile", reason)
        elif self._machine.device.is_cpu and not asks_for(self._spec, "compile"):
            self._refuse(allowed, "compile", "on a CPU it builds for minutes with a C++ compiler; ask with --set")

    def _threads(self, allowed: dict[str, list[Value]]) -> None:
        most, own = max(1, int(self._usable_cpus)), self._script_settings.intra_op_threads
        values = allowed["intra_op_threads"]
        allowed["intra_op_threads"] = [n for n in values if isinstance(n, int) and (n <= most or n == own)]
        reason = why_no_threads(self._facts)
        if reason and Group.THREADS not in self._facts.claims:
            self._refuse(allowed, "intra_op_threads", reason)
        if not self._machine.is_linux:
            self._refuse(allowed, "omp_wait_policy", "it is for the OpenMP runtime of torch on Linux")
        elif int(self._usable_cpus) < 2:
            self._refuse(allowed, "omp_wait_policy", "with one core there is no team of threads")
        elif self._script_settings.omp_wait_policy is OmpWaitPolicy.PASSIVE:
            self._refuse(allowed, "omp_wait_policy", "OMP_WAIT_POLICY is set already")

    def _device_settings(self, allowed: dict[str, list[Value]]) -> None:
        if self._machine.device.is_cpu:
            for name in INERT_ON_CPU:
                self._refuse(allowed, name, "it does nothing without an accelerator")
            return
        if self._facts.own_memory_fraction:
            self._refuse(allowed, "memory_fraction", "the script sets it by itself")
        elif not asks_for(self._spec, "memory_fraction"):
            # In force is the cap's share in any case; a smaller one only lowers what the winner may hold.
            allowed["memory_fraction"] = [1.0]
        if Group.TRANSFER not in self._facts.claims:
            self._refuse(allowed, "stream_prefetch", NO_STREAM_PREFETCH)
        if not asks_for(self._spec, "expandable_segments"):
            reason = "it changes what fits rather than how fast it trains; ask with --set"
            self._refuse(allowed, "expandable_segments", reason)

    def _arguments(self, allowed: dict[str, list[Value]]) -> None:
        """Leaves of a mapped setting only the values that the script has an argument for."""
        for name in self._mapped & DOMAINS.keys():
            values = mapped_values(name, self._maps)
            for value in list(allowed[name]) if values is not None else ():
                if str(value).lower() not in (values or ()):
                    self._drop(allowed, name, value, "the script's arguments cannot say it")

    # The batch ------------------------------------------------------------------------------------------------

    def _batch_per_device(self) -> int | None:
        script_settings = self._script_settings
        return (
            None
            if script_settings.batch_size is None
            else script_settings.batch_size * script_settings.grad_accum_steps
        )

    def _batch_parameters(self, domains: dict[str, list[Value]], allowed: dict[str, list[Value]]) -> None:
        reason = why_no_split(
            self._facts,
            splits_batch_norm=self._spec.allow_batchnorm_accumulation,
            mapped=self._mapped,
        )
        if self._batch is None or (reason and not self._is_fixed_batch):
            self._refused.setdefault("batch_size", reason)
            self._refused.setdefault("grad_accum_steps", reason)
            if not self._is_fixed_batch:
                raise SearchSpaceError(f"--effective-batch {self._spec.effective_batch}: {reason}.", "Use fixed.")
            return
        if not self._is_fixed_batch:
            self._free_batch(domains, allowed)
            return
        divisors = divisors_of(self._batch)
        domains[SPLIT] = list(range(len(divisors)))
        own = self._script_settings.batch_size
        assert own is not None
        allowed[SPLIT] = [divisors.index(own)] if reason else list(domains[SPLIT])
        if reason:
            self._refused.setdefault("batch_size", reason)

    def _free_batch(self, domains: dict[str, list[Value]], allowed: dict[str, list[Value]]) -> None:
        own = self._script_settings
        low, high = 1, FREE_BATCH_SIZES[-1]
        if self._spec.effective_batch != "free":
            values = parse_range("batch_size", self._spec.effective_batch)
            low, high = int(values[0]), int(values[-1])
        assert own.batch_size is not None
        domains["batch_size"] = sorted({*FREE_BATCH_SIZES, own.batch_size})
        domains["grad_accum_steps"] = sorted({*FREE_ACCUMULATION, own.grad_accum_steps})
        sizes = [n for n in domains["batch_size"] if isinstance(n, int) and low <= n * self._facts.world_size <= high]
        allowed["batch_size"] = list(sizes) or [own.batch_size]
        allowed["grad_accum_steps"] = [own.grad_accum_steps]
