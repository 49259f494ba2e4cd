"""Makes the figures of a diagnosis from the result of a trial."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.errors import EveryTrialFailedError, NoFeasibleSettingsError
from autotune.measure.bottleneck import Bottleneck
from autotune.measure.bottleneck import diagnose as find_bottleneck
from autotune.model.diagnosis import Diagnosis
from autotune.model.facts import ScriptFacts, samples_unit
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, RankResult, TrialResult, last_lines
from autotune.model.storage_traps import trap_text
from autotune.model.surroundings import Surroundings
from autotune.sandbox.mounts import mount_above
from autotune.settings import Settings
from autotune.spec import SearchSpec
from autotune.study.protection_record import changed_words
from autotune.study.target import Target


def make_diagnosis(
    spec: SearchSpec, target: Target, script_settings: Settings, facts: ScriptFacts, result: TrialResult
) -> Diagnosis:
    """The diagnosis without advice.

    Args:
        spec: Names the script.
        target: Place of the trial.
        script_settings: The script's own settings, in force in the trial.
        facts: Facts of the probe.
        result: Result of a trial with a look at the training loop.

    Raises:
        EveryTrialFailedError: The trial was not measured, or ended before the look at the loop.
        NoFeasibleSettingsError: The script needs more memory than the cap.
        InterruptedError: The user ended the trial.
    """
    measurement, lead = result.measurement, next(iter(result.ranks), None)
    if measurement is None or lead is None or lead.observation is None:
        raise _failure(result)
    around = result.surroundings
    utilization = around.device_utilization if around is not None else None
    tried = lead.observation.storage
    mount = mount_above(tried.example) if tried is not None else None
    bottleneck = _bottleneck(measurement, utilization, target)
    return Diagnosis(
        script=spec.script,
        machine=f"{target.host.device}, {target.host.usable_cpus:g} usable cores, torch {target.host.torch}",
        device=target.device.kind,
        is_cpu=target.device.is_cpu,
        usable_cpus=target.usable_cpus,
        samples_unit=samples_unit(facts, spec.samples_per_step),
        samples_per_second=measurement.steady_samples_per_second,
        interval=_steady_interval(measurement),
        ceiling_samples_per_second=bottleneck.ceiling_samples_per_second,
        bottleneck=bottleneck.kind,
        data_wait_fraction=measurement.data_wait_fraction,
        samples_per_step=_samples_per_step(lead) * facts.world_size,
        restart_s=measurement.restart_s,
        epoch_s=measurement.epoch_s,
        device_utilization=utilization,
        memory_cap_bytes=target.cap_bytes,
        peak_memory_bytes=result.peak_memory_bytes,
        peak_allocated_bytes=lead.peak_allocated_bytes,
        outside_allocator_bytes=result.outside_allocator_bytes,
        natural=script_settings,
        facts=facts,
        observation=lead.observation,
        mount=mount.description if mount is not None else "",
        io_pressure=around.io_pressure if around is not None else None,
        disk_bytes_per_s=_disk_rate(around),
        notes=(
            *(trap_text(trap) for trap in (facts.loader.traps if facts.loader is not None else ())),
            *_not_tried(lead.observation.storage_failure),
            *_notes(result),
        ),
    )


def _not_tried(failure: str) -> Iterator[str]:
    if failure:
        yield f"Other formats and decoders could not be tried: {failure}."


def _disk_rate(around: Surroundings | None) -> float | None:
    if around is None or around.storage_read_bytes is None or not around.window_s:
        return None
    return around.storage_read_bytes / around.window_s


def _steady_interval(measurement: Measurement) -> tuple[float, float]:
    """Interval of the rate within an epoch, in samples per second."""
    scale = measurement.steady_samples_per_second / measurement.samples_per_second
    return measurement.low * scale, measurement.high * scale


def _samples_per_step(rank: RankResult) -> float:
    window = [block for block in rank.blocks if block.phase == "window"]
    return sum(block.num_samples for block in window) / sum(block.num_steps for block in window)


def _bottleneck(measurement: Measurement, utilization: float | None, target: Target) -> Bottleneck:
    """The bottleneck; a ceiling below the rate is noise, and is raised to the rate."""
    rate, compute = measurement.steady_samples_per_second, measurement.compute_samples_per_second
    return find_bottleneck(
        rate,
        max(compute, rate) if compute is not None else None,
        measurement.data_wait_fraction,
        device_is_cpu=target.device.is_cpu,
        device_busy_fraction=min(1.0, utilization) if utilization is not None else None,
    )


def _failure(result: TrialResult) -> Exception:
    """The error for a trial without an observation of the loop."""
    if result.outcome is Outcome.INTERRUPTED:
        return InterruptedError()
    if result.outcome.is_infeasible:
        return NoFeasibleSettingsError(
            f"The script under its own settings does not fit: {result.reason}",
            "Raise --memory-cap, or start from a smaller batch.",
        )
    reason = result.reason or "it ended before its loop could be looked at."
    printed = last_lines(result.log_tail)
    hints = [f"The last lines that it printed:\n{printed}"] if printed else []
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
