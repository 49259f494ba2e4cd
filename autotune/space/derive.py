"""Derives the search space from the probe's facts, the machine and the user's wishes, with every refusal by name."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import SearchSpaceError
from autotune.host import DeviceInfo
from autotune.model.facts import ScriptFacts
from autotune.model.maps import all_maps, mapped_settings, mapped_values
from autotune.settings import BY_NAME, DOMAINS, INERT_ON_CPU, SETTINGS, Setting, Value
from autotune.settings.cases import SearchCase
from autotune.settings.compile_mode import GRAPHS
from autotune.space.ranges import parse_range
from autotune.space.refusals import why_no_free_batch, why_no_samples, why_other_framework
from autotune.space.script_settings import script_settings_of
from autotune.space.search_space import (
    FREE_ACCUMULATION,
    FREE_BATCH_SIZES,
    SPLIT,
    SearchSpace,
    divisors_of,
    why_no_graphs,
)
from autotune.space.wishes import Wishes
from autotune.spec import SearchSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Limits of the space set by the machine."""

    usable_cpus: float
    device: DeviceInfo
    shm_free_bytes: int | None
    is_linux: bool = True


def derive_space(facts: ScriptFacts, machine: Machine, spec: SearchSpec) -> SearchSpace:
    """The space of this script on this machine, narrowed as the user asked.

    Raises:
        SearchSpaceError: The user asks for a refused setting, or for an impossible value.
    """
    return _Derivation(facts, machine, spec).space()


class _Derivation:
    """Collects the allowed values of every parameter; a refusal leaves the script's own value."""

    def __init__(self, facts: ScriptFacts, machine: Machine, spec: SearchSpec) -> None:
        self._facts, self._machine, self._spec = facts, machine, spec
        self._maps = all_maps(spec.maps, facts)
        self._mapped = mapped_settings(self._maps)
        self._script_settings = script_settings_of(facts, self._mapped)
        self._refused: dict[str, str] = {}
        self._foreign: set[str] = set()
        """Settings of other frameworks, refused without a message unless the user names the setting."""
        self._is_fixed_batch = spec.effective_batch == "fixed"
        self._batch = self._batch_per_device()
        self._case = SearchCase(
            facts=facts,
            is_cpu=machine.device.is_cpu,
            mapped=self._mapped,
            splits_batch_norm=spec.allow_batchnorm_accumulation,
            own=self._script_settings,
            asked=spec.asked_names,
            device=machine.device,
            cpus=machine.usable_cpus / facts.world_size,
            is_linux=machine.is_linux,
            is_batch_free=not self._is_fixed_batch,
        )

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
        self._refuse_graphs(allowed)
        loader = self._facts.loader
        batch_size = self._script_settings.batch_size
        return SearchSpace(
            script_settings=self._script_settings,
            domains={name: tuple(values) for name, values in domains.items()},
            allowed={name: tuple(values) for name, values in allowed.items()},
            refused=tuple((name, why) for name, why in self._refused.items() if name not in self._foreign),
            device_is_cpu=self._machine.device.is_cpu,
            world_size=self._facts.world_size,
            batch_per_device=self._batch if self._is_fixed_batch else None,
            has_asked_batches=not {"batch_size", "grad_accum_steps"}.isdisjoint(self._case.asked),
            shm_free_bytes=self._machine.shm_free_bytes,
            sample_bytes=loader.batch_bytes / (batch_size or 1) if loader is not None else 0.0,
        )

    def _own_values(self) -> tuple[dict[str, list[Value]], dict[str, list[Value]]]:
        """Static domains with the script's own values added, as a pair: the domains, and the allowed values."""
        plain = self._script_settings.to_dict()
        domains = {name: list(values) for name, values in DOMAINS.items()}
        for name, values in domains.items():
            if plain[name] not in values:
                values.append(plain[name])
        return domains, {name: list(values) for name, values in domains.items()}

    # Refusals -------------------------------------------------------------------------------------------------

    def _refuse_values(self, allowed: dict[str, list[Value]]) -> None:
        for setting in SETTINGS:
            reason = why_other_framework(setting, self._facts)
            if reason:
                self._foreign.add(setting.name)
            if setting.domain and reason:
                self._refuse(allowed, setting.name, reason)
            elif setting.domain:
                self._refuse_setting(setting, allowed)
        if self._case.is_cpu:
            for name in INERT_ON_CPU:
                self._refuse(allowed, name, "it does nothing without an accelerator")
        self._arguments(allowed)

    def _refuse_setting(self, setting: Setting, allowed: dict[str, list[Value]]) -> None:
        name, case = setting.name, self._case
        own = self._script_settings.to_dict()[name]
        allowed[name] = [value for value in allowed[name] if value == own or setting.is_tried(case, value)]
        is_handed_on = case.is_claimed(setting.group) or name in case.mapped
        reason = "" if is_handed_on else setting.refused(case)
        reason = reason or setting.pointless(case)
        if reason and setting.is_foreign(case) and name not in case.asked:
            allowed[name] = [own]
        elif reason:
            self._refuse(allowed, name, reason)
        if reason:
            return
        for value, why in setting.dropped(case):
            self._drop(allowed, name, value, why)

    def _refuse(self, allowed: dict[str, list[Value]], name: str, reason: str) -> None:
        """Leaves a parameter at the script's own value."""
        allowed[name] = [self._script_settings.to_dict()[name]]
        self._refused.setdefault(name, reason)

    def _drop(self, allowed: dict[str, list[Value]], name: str, value: Value, reason: str) -> None:
        """Takes a value away, except the script's own."""
        if value in allowed[name] and value != self._script_settings.to_dict()[name]:
            allowed[name].remove(value)
            self._refused.setdefault(f"{name}={value}", reason)

    def _samples(self) -> None:
        reason = why_no_samples(self._facts, is_declared=self._spec.samples_per_step is not None)
        if reason:
            self._refused["samples_per_step"] = reason

    def _arguments(self, allowed: dict[str, list[Value]]) -> None:
        """Drops values of mapped settings without an argument of the script."""
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
        reason = BY_NAME["batch_size"].refused(self._case)
        if not self._is_fixed_batch:
            is_declared = self._spec.samples_per_step is not None
            reason = reason or why_no_free_batch(self._facts, is_declared=is_declared)
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

    def _refuse_graphs(self, allowed: dict[str, list[Value]]) -> None:
        """Drops CUDA graphs where an optimizer step has several backward passes, however the batch is split.

        Raises:
            SearchSpaceError: The user asks for CUDA graphs there.
        """
        fewest = self._script_settings.grad_accum_steps
        if SPLIT in allowed and self._batch is not None:
            divisors = divisors_of(self._batch)
            fewest = self._batch // max(divisors[int(index)] for index in allowed[SPLIT])
        elif "grad_accum_steps" in allowed:
            fewest = min(int(value) for value in allowed["grad_accum_steps"])
        # Rounded down: a further pass in some steps only, such as a penalty, is no second pass on every micro-batch.
        passes_per_micro_batch = max(1, self._facts.num_backwards_per_step // self._facts.num_micro_batches_per_step)
        reason = why_no_graphs(fewest * passes_per_micro_batch)
        for mode in GRAPHS if reason else ():
            is_own = mode.value == self._script_settings.compile_mode
            if "compile_mode" in self._case.asked and mode.value in allowed["compile_mode"] and not is_own:
                raise SearchSpaceError(f"compile_mode {mode} cannot be searched: {reason}.", "Leave compile_mode out.")
            self._drop(allowed, "compile_mode", mode.value, reason)

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
