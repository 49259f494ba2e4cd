"""Makes the published result and the tuned config from finished trials and finals."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import autotune
from autotune.emit.agreed_arguments import note_written
from autotune.emit.tuned_config import MemoryShares, Provenance, TunedConfig, TunedScript
from autotune.emit.writing import check_overwrite, write_config
from autotune.errors import ConfigError
from autotune.measure.bottleneck import Bottleneck, BottleneckKind, diagnose
from autotune.model.facts import ScriptFacts, samples_unit
from autotune.model.maps import all_maps
from autotune.model.memory_share import MemoryShare
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, TrialResult
from autotune.model.search_result import Contender, SearchResult, Status, TrialCounts
from autotune.model.trial_records import FinalRecord, TrialRecord, results_of_runs
from autotune.sandbox.changed_files import sorted_changes
from autotune.search.contributions import contributions
from autotune.search.history import FinishedTrial, History
from autotune.settings.compile_mode import sizes_vary
from autotune.space.derive import derive_space
from autotune.spec import SearchSpec
from autotune.store.records import StudyRecord
from autotune.study.budget import Budget
from autotune.study.final_choice import FinalsResult
from autotune.study.final_doubts import counted
from autotune.study.final_rates import fits, published_rate, steadiness_of
from autotune.study.finals_usage import usage_of
from autotune.study.idle_changes import idle_in, idle_notes, without_changes, without_idle_winner, worth_without
from autotune.study.larger_batches import BatchGain
from autotune.study.left_out import left_out_of
from autotune.study.limits import EARLIER_GAIN, enough_s, keeps_gain
from autotune.study.notes import notes_of, notes_on_search
from autotune.study.protection_record import weakest
from autotune.study.target import Target, script_digest

UNKNOWN = Bottleneck(
    kind=BottleneckKind.UNKNOWN, data_wait_fraction=0.0, ceiling_samples_per_second=None, ceiling_fraction=None
)
MEASURING_PARTS = ("warm_up", "compute", "ramp", "window")


def publish(
    *,
    study: StudyRecord,
    target: Target,
    trials: Sequence[TrialRecord],
    history: History,
    num_gated: int,
    finals: FinalsResult | None,
    gains: Sequence[BatchGain],
    memory: MemoryShare | None = None,
    budget: Budget,
    end_reason: str,
    is_limit: bool,
    is_stopped: bool,
) -> SearchResult:
    """The published result; writes the tuned config when the finals have measured a best.

    A failed write of the config adds a note, and the search still counts.

    Args:
        study: The study, with the facts of the probe.
        target: Place in which the trials ran.
        trials: All trials of the study.
        history: The finished trials.
        num_gated: Settings left out without a trial.
        finals: Result of the finals; None when the finals were not run to the end.
        gains: Rates at larger batches.
        memory: Device memory of the winner; None on a CPU and without finals.
        budget: Time of the search.
        end_reason: Reason for the end of the trials, as one sentence.
        is_limit: Whether the time or the number of trials ran out.
        is_stopped: Whether the user asked to stop.
    """
    finals = without_idle_winner(finals, study) if finals is not None else None
    status = status_of(
        finals=finals, baseline=history.baseline, trials=trials, is_limit=is_limit, is_stopped=is_stopped
    )
    result = make_result(
        study=study,
        target=target,
        status=status,
        trials=trials,
        history=history,
        num_gated=num_gated,
        finals=finals,
        wall_s=budget.spent_s,
        reason=f"{end_reason} {finals.shortened}".strip() if finals is not None else end_reason,
    )
    notes = (*result.notes, *notes_on_search(study, status, history, gains, budget))
    enough = enough_s(budget, history, study.facts) if status is Status.TOO_SHORT else None
    result = replace(result, notes=notes, memory=memory, enough_s=enough)
    if keeps_gain(study, status):
        return replace(result, notes=(*result.notes, EARLIER_GAIN))
    if finals is None or result.best is None or result.best.samples_per_second is None:
        return result
    path, note = write_tuned_config(study, tuned_config(study, target, result))
    notes = (*result.notes, note) if note else result.notes
    return replace(result, config=str(path) if path is not None else None, notes=notes)


def make_result(
    *,
    study: StudyRecord,
    target: Target,
    status: Status,
    trials: Sequence[TrialRecord],
    history: History,
    num_gated: int,
    finals: FinalsResult | None,
    wall_s: float,
    reason: str,
) -> SearchResult:
    """The result; all figures come from the finals, except the contributions of single changes."""
    best, baseline = history.best, history.baseline
    records = finals.records if finals is not None else ()
    winner = finals.winner if finals is not None else best
    if status is Status.TOO_SHORT and finals is not None and _is_uncompared(finals, baseline):
        winner = baseline
    idle = idle_in(winner, records, study) if winner is not None else ()
    before = _bottleneck(baseline, records, trials, target)
    after = _bottleneck(winner, records, trials, target)
    comparison = finals.comparison if finals is not None else None
    assert study.facts is not None
    own, published = _contenders(baseline, winner, records, target, study.facts)
    if published is not None and idle and study.script_settings is not None:
        published = replace(published, settings=without_changes(published.settings, study.script_settings, idle))
    results = results_of_runs(trials, records)
    escaped = sorted_changes({*study.facts.escaped, *(path for result in results for path in result.escaped)})
    has_choice = bool(derive_space(study.facts, target.machine, study.spec).searched)
    notes = notes_of(
        status,
        history,
        winner,
        trials,
        finals,
        escaped,
        study.facts.imports,
        has_choice=has_choice,
        host_cap_bytes=target.cap_bytes if target.device.is_cpu else target.host_cap_bytes,
        loader=None if sizes_vary(study.facts) else study.facts.loader,
        is_rebuilt=study.facts.loader is not None and study.facts.loader.is_rebuilt,
    )
    return SearchResult(
        study=study.name,
        status=status,
        baseline=own,
        best=published,
        speedup=(comparison.ratio, comparison.low, comparison.high) if comparison is not None else None,
        bottleneck=before.kind.value,
        bottleneck_after=after.kind.value,
        data_wait_fraction=before.data_wait_fraction,
        ceiling_samples_per_second=before.ceiling_samples_per_second,
        ceiling_fraction=before.ceiling_fraction,
        trials=count_trials(trials, num_gated),
        memory_cap_bytes=target.cap_bytes,
        wall_s=wall_s,
        measuring_s=sum(map(_measuring_s, results)),
        config=None,
        samples_unit=samples_unit(study.facts, study.spec.samples_per_step),
        reason=reason,
        notes=(*notes, *(idle_notes(winner, idle) if winner is not None else ())),
        contributions=worth_without(contributions(history, winner.settings), idle)
        if status is Status.IMPROVED and winner is not None
        else (),
        left_out=left_out_of(study, (trial.ending for trial in trials)),
        protection=weakest(results),
        escaped=tuple(escaped),
        doubt=finals.doubt if finals is not None else "",
        beside_load=finals.beside_load if finals is not None else "",
        finalists=steadiness_of(counted(records)),
    )


def interrupted_result(study: StudyRecord, target: Target, *, wall_s: float) -> SearchResult:
    """The result of a search stopped by the user before the first trial."""
    return SearchResult(
        study=study.name,
        status=Status.INTERRUPTED,
        baseline=None,
        best=None,
        speedup=None,
        bottleneck="unknown",
        bottleneck_after="unknown",
        data_wait_fraction=None,
        ceiling_samples_per_second=None,
        trials=count_trials((), 0),
        memory_cap_bytes=target.cap_bytes,
        wall_s=wall_s,
        measuring_s=0.0,
        config=None,
        reason="It was asked to stop.",
    )


def status_of(
    *,
    finals: FinalsResult | None,
    baseline: FinishedTrial | None,
    trials: Sequence[TrialRecord],
    is_stopped: bool,
    is_limit: bool = False,
) -> Status:
    """The status of a search; a limit that cut every trial is no failure of the script."""
    if finals is not None:
        if baseline is not None and finals.winner.number != baseline.number and not _fits(baseline, finals):
            return Status.BASELINE_INFEASIBLE
        if not finals.is_compared or finals.is_open or _is_uncompared(finals, baseline):
            return Status.TOO_SHORT
        return Status.IMPROVED if finals.comparison is not None and finals.comparison.is_gain else Status.NO_GAIN
    if is_stopped:
        return Status.INTERRUPTED
    outcomes = [record.result.outcome for record in trials]
    if is_limit and all(outcome is Outcome.INTERRUPTED for outcome in outcomes):
        return Status.TOO_SHORT
    return Status.NO_FEASIBLE if any(outcome.is_infeasible for outcome in outcomes) else Status.ALL_FAILED


def _is_uncompared(finals: FinalsResult, baseline: FinishedTrial | None) -> bool:
    """Whether other settings than the script's own lead the finals, without a comparison with the script's own."""
    return finals.comparison is None and (baseline is None or finals.winner.number != baseline.number)


def _fits(trial: FinishedTrial, finals: FinalsResult) -> bool:
    """Whether a trial stayed within the memory limits, in the finals too."""
    return not trial.outcome.is_infeasible and fits(finals.records, trial.number)


def count_trials(trials: Sequence[TrialRecord], num_gated: int) -> TrialCounts:
    """Numbers of trials by kind of outcome."""
    outcomes = [record.result.outcome for record in trials]
    return TrialCounts(
        complete=sum(outcome.is_complete for outcome in outcomes),
        infeasible=sum(outcome.is_infeasible for outcome in outcomes),
        failed=sum(outcome.is_failed for outcome in outcomes),
        gated=num_gated,
    )


def config_path(spec: SearchSpec) -> Path:
    """Path of the tuned config."""
    return Path(spec.cwd, spec.out)


def check_config_path(spec: SearchSpec) -> None:
    """Refuses an impossible place for the config before anything runs.

    Raises:
        ConfigError: The place has a file of other origin or of another script, or is not writable.
    """
    check_overwrite(config_path(spec), script=spec.script, digest=script_digest(spec), force=spec.force)


def tuned_config(study: StudyRecord, target: Target, result: SearchResult) -> TunedConfig:
    """The tuned config of a result with a best."""
    best, baseline = result.best, result.baseline
    assert best is not None and best.samples_per_second is not None and best.interval is not None
    assert study.facts is not None and study.script_settings is not None
    spec = study.spec
    return TunedConfig(
        settings=best.settings,
        samples_per_second=best.samples_per_second,
        interval=best.interval,
        baseline_samples_per_second=baseline.samples_per_second if baseline is not None else None,
        speedup=result.speedup,
        samples_unit=result.samples_unit,
        peak_memory_bytes=best.peak_memory_bytes,
        memory_cap_bytes=target.cap_bytes,
        bottleneck=result.bottleneck,
        memory=_shares(target, result.memory),
        usage=best.usage,
        baseline_usage=baseline.usage if baseline is not None else None,
        provenance=Provenance(
            study=study.name,
            trial=best.trial or 0,
            host=target.host,
            world_size=study.facts.world_size,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            autotune=autotune.__version__,
        ),
        script=TunedScript(
            path=spec.script,
            digest=study.fingerprint.get("script", ""),
            natural=study.script_settings,
            maps=dict(all_maps(spec.maps, study.facts)),
            # Only trials need the hundreds of imports, for a forked start.
            facts=replace(study.facts, imports=(), escaped=()),
            splits_batch_norm=spec.allow_batchnorm_accumulation,
            num_processes_per_node=spec.num_processes_per_node,
        ),
    )


def write_tuned_config(study: StudyRecord, config: TunedConfig) -> tuple[Path | None, str]:
    """Writes the tuned config; gives the path, and a sentence if the config is elsewhere than asked for, or nowhere.

    The place may have got another script's config, or have filled up, while the search ran.
    """
    path = config_path(study.spec)
    beside = path.with_name(f"{path.stem}-{re.sub(r'[^A-Za-z0-9._-]', '-', study.name)[:60]}{path.suffix}")
    failures = []
    for place in (path, beside):
        try:
            write_config(place, config, force=study.spec.force)
        except (ConfigError, OSError) as error:
            failures.append(str(error))
            continue
        note_written(place, config)
        return place, f"{failures[0]} The config of this search is {place}." if failures else ""
    hint = f"A search with another --out and --take-over {study.name} counts the trials of this search."
    return None, f"The config could not be written. {failures[0]} {hint}"


def _shares(target: Target, memory: MemoryShare | None) -> MemoryShares:
    guard = None if target.device.is_cpu else target.cap_fraction
    if memory is None:
        return MemoryShares(fraction=guard)
    return MemoryShares(
        fraction=guard,
        shared_memory_fraction=memory.shared_fraction,
        shared_memory_bytes=memory.shared_bytes,
        expandable_memory_bytes=memory.expandable_bytes,
        unused_blocks=memory.unused_blocks,
        blocks_memory_bytes=memory.blocks_bytes,
    )


def _contenders(
    baseline: FinishedTrial | None,
    winner: FinishedTrial | None,
    records: Sequence[FinalRecord],
    target: Target,
    facts: ScriptFacts,
) -> tuple[Contender | None, Contender | None]:
    """The baseline and the winner; another winner than the baseline with the energy saved."""
    own, best = (_contender(each, records, target, facts) if each is not None else None for each in (baseline, winner))
    if own is not None and best is not None and best.usage is not None and best.trial != own.trial:
        best = replace(best, usage=best.usage.saving_over(own.usage))
    return own, best


def _contender(trial: FinishedTrial, records: Sequence[FinalRecord], target: Target, facts: ScriptFacts) -> Contender:
    rate = published_rate(counted(records), trial.number)
    peaks = [r.result.peak_memory_bytes for r in records if r.number == trial.number and r.result.peak_memory_bytes]
    peak = max([*peaks, *([trial.peak_memory_bytes] if trial.peak_memory_bytes else [])], default=None)
    measurements = _measurements([r.result for r in records if r.number == trial.number])
    return Contender(
        trial=trial.number,
        settings=trial.settings,
        feasible=not trial.outcome.is_infeasible and (peak is None or peak <= target.cap_bytes),
        samples_per_second=rate[0] if rate else None,
        interval=rate[1] if rate else None,
        steady_samples_per_second=_steady(measurements) if rate else None,
        peak_memory_bytes=peak,
        usage=usage_of([r.result for r in records if r.number == trial.number], trial.settings, facts, target.device),
    )


def _bottleneck(
    trial: FinishedTrial | None, records: Sequence[FinalRecord], trials: Sequence[TrialRecord], target: Target
) -> Bottleneck:
    if trial is None:
        return UNKNOWN
    return bottleneck_of(trial.number, records, trials, device_is_cpu=target.device.is_cpu)


def bottleneck_of(
    number: int, records: Sequence[FinalRecord], trials: Sequence[TrialRecord], *, device_is_cpu: bool
) -> Bottleneck:
    """The bottleneck of a trial, over the finals of the trial if any, and otherwise over the trial's measurement."""
    results = [record.result for record in records if record.number == number]
    results = results or [record.result for record in trials if record.number == number]
    measurements = _measurements(results)
    if not measurements:
        return UNKNOWN
    # The rate within an epoch: the cost of an epoch's start is no bottleneck of the steps.
    rate = statistics.fmean(measurement.steady_samples_per_second for measurement in measurements)
    readings = [measurement.compute_samples_per_second for measurement in measurements]
    ceilings = [ceiling for ceiling in readings if ceiling is not None]
    return diagnose(
        rate,
        # A disturbance can only lower a reading, so the highest reading is the ceiling.
        max([*ceilings, rate]) if ceilings else None,
        statistics.fmean(measurement.data_wait_fraction for measurement in measurements),
        device_is_cpu=device_is_cpu,
        device_busy_fraction=_busy_fraction(results),
    )


def _busy_fraction(results: Sequence[TrialResult]) -> float | None:
    """Mean share of the windows with a running kernel, 0 to 1; None = unknown."""
    readings = [result.surroundings.device_utilization for result in results if result.surroundings is not None]
    known = [fraction for fraction in readings if fraction is not None]
    return min(1.0, statistics.fmean(known)) if known else None


def _steady(measurements: Sequence[Measurement]) -> float | None:
    """The rate within an epoch in samples per second; None when an epoch's start costs nothing."""
    if all(measurement.restart_s is None for measurement in measurements):
        return None
    return statistics.geometric_mean(measurement.steady_samples_per_second for measurement in measurements)


def _measurements(results: Sequence[TrialResult]) -> list[Measurement]:
    return [result.measurement for result in results if result.measurement is not None]


def _measuring_s(result: TrialResult) -> float:
    return sum(result.durations_s.get(part, 0.0) for part in MEASURING_PARTS)
