"""From a trial that was looked at to the figures of its diagnosis. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.errors import EveryTrialFailedError, NoFeasibleSettingsError
from autotune.measure.bottleneck import Bottleneck
from autotune.measure.bottleneck import diagnose as find_bottleneck
from autotune.model.diagnosis import Diagnosis
from autotune.model.facts import ScriptFacts, samples_unit
from autotune.model.observation import Observation
from autotune.model.result import Measurement, RankResult, TrialResult
from autotune.settings import Settings
from autotune.spec import SearchSpec
from autotune.study.protection_record import changed_words
from autotune.study.target import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What of a result a diagnosis is made of."""

    measurement: Measurement
    lead: RankResult
    observation: Observation
    device_utilization: float | None

    @property
    def interval(self) -> tuple[float, float]:
        """Of the steady rate."""
        scale = self.measurement.steady_samples_per_second / self.measurement.samples_per_second
        return self.measurement.low * scale, self.measurement.high * scale

    @property
    def samples_per_step(self) -> float:
        """Of the first rank."""
        window = [block for block in self.lead.blocks if block.phase == "window"]
        return sum(block.num_samples for block in window) / sum(block.num_steps for block in window)


def make_diagnosis(
    spec: SearchSpec, target: Target, script_settings: Settings, facts: ScriptFacts, result: TrialResult
) -> Diagnosis:
    """The figures of a trial that was looked at, without advice.

    Raises:
        EveryTrialFailedError: It was not measured, or ended before it could be looked at.
        NoFeasibleSettingsError: It needs more memory than the cap.
        InterruptedError: It was ended by the user.
    """
    seen = _seen(result)
    bottleneck = _bottleneck(seen, target)
    return Diagnosis(
        script=spec.script,
        machine=f"{target.host.device}, {target.host.usable_cpus:g} usable cores, torch {target.host.torch}",
        device=target.device.kind,
        is_cpu=target.device.is_cpu,
        usable_cpus=target.usable_cpus,
        samples_unit=samples_unit(facts, spec.samples_per_step),
        samples_per_second=seen.measurement.steady_samples_per_second,
        interval=seen.interval,
        ceiling_samples_per_second=bottleneck.ceiling_samples_per_second,
        bottleneck=bottleneck.kind,
        data_wait_fraction=seen.measurement.data_wait_fraction,
        samples_per_step=seen.samples_per_step * facts.world_size,
        restart_s=seen.measurement.restart_s,
        epoch_s=seen.measurement.epoch_s,
        device_utilization=seen.device_utilization,
        memory_cap_bytes=target.cap_bytes,
        peak_memory_bytes=result.peak_memory_bytes,
        peak_allocated_bytes=seen.lead.peak_allocated_bytes,
        outside_allocator_bytes=result.outside_allocator_bytes,
        natural=script_settings,
        facts=facts,
        observation=seen.observation,
        notes=tuple(_notes(result)),
    )


def _seen(result: TrialResult) -> _Seen:
    """What there is to be told, or the error that says why there is nothing."""
    lead = result.ranks[0] if result.ranks else None
    observation = lead.observation if lead is not None else None
    if result.measurement is None or lead is None or observation is None:
        raise _why_not(result)
    utilization = result.surroundings.device_utilization if result.surroundings is not None else None
    return _Seen(measurement=result.measurement, lead=lead, observation=observation, device_utilization=utilization)


def _bottleneck(seen: _Seen, target: Target) -> Bottleneck:
    """What the job waits for; a ceiling below the rate is noise, and is lifted to it."""
    rate, compute = seen.measurement.steady_samples_per_second, seen.measurement.compute_samples_per_second
    return find_bottleneck(
        rate,
        max(compute, rate) if compute is not None else None,
        seen.measurement.data_wait_fraction,
        device_is_cpu=target.device.is_cpu,
        device_busy_fraction=min(1.0, seen.device_utilization) if seen.device_utilization is not None else None,
    )


def _why_not(result: TrialResult) -> Exception:
    if result.outcome == "interrupted":
        return InterruptedError()
    if result.outcome.is_infeasible:
        return NoFeasibleSettingsError(
            f"The script under its own settings does not fit: {result.reason}",
            "Raise --memory-cap, or start from a smaller batch.",
        )
    reason = result.reason or "it ended before its loop could be looked at."
    printed = result.log_tail.strip()
    hints = [f"The last lines that it printed:\n{printed[-2000:]}"] if printed else []
    if not printed or not result.reason:
        hints.insert(0, "Give it more to do, as more epochs: looking takes some seconds after the measurement.")
    return EveryTrialFailedError(f"The script cannot be diagnosed: {reason}", "\n".join(hints))


def _notes(result: TrialResult) -> Iterator[str]:
    disturbances = result.surroundings.disturbances if result.surroundings is not None else ()
    yield from dict.fromkeys((*result.notes, *disturbances))
    if disturbances:
        yield "Advice was measured beside that, and may promise far too much: diagnose again when the machine is quiet."
    measurement = result.measurement
    if measurement is not None and not measurement.is_converged:
        yield "The rate did not settle within the time of the measurement; see its interval."
    if measurement is not None and measurement.is_primed:
        yield "Loader queues may have been full when the measurement began, so that the rate may be too high."
    if result.escaped:
        yield f"{changed_words(result.escaped)}."
