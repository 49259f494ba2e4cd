"""Writes the notes beside the result of a search, each with advice. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from autotune.measure.block import Phase
from autotune.measure.checkpoints import without_checkpoints
from autotune.measure.paired import Comparison
from autotune.model.facts import LoaderFacts
from autotune.model.maps import all_maps, mapped_settings
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import Status
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.search.history import FinishedTrial, History
from autotune.space.refusals import why_no_free_batch, why_no_split
from autotune.store.records import StudyRecord
from autotune.study.budget import Budget
from autotune.study.compile_cost import compile_note
from autotune.study.final_choice import LEAST_LIKELY_GAIN, FinalsResult
from autotune.study.fingerprint import changed_code
from autotune.study.larger_batches import BatchGain, describe
from autotune.study.limits import ENOUGH_TRIALS, enough_s
from autotune.study.memory_growth import growth_notes
from autotune.study.protection_record import changed_words
from autotune.units import format_minutes, format_rate, format_seconds
from autotune.verdict.format_parity import NOT_CLAIMED
from autotune.verdict.judge import TIME_RAN_OUT
from autotune.verdict.skipped_steps import why_skipped

DISTURBED_SHARE = 0.25
"""Share of disturbed trials above which a note is given; the finals make up for single disturbances."""
TRACKERS = {
    "wandb": "Weights & Biases",
    "mlflow": "MLflow",
    "comet_ml": "Comet",
    "neptune": "Neptune",
    "clearml": "ClearML",
    "swanlab": "SwanLab",
    "trackio": "Trackio",
}
"""Packages with reports of runs to a server, by module."""
LEAST_TOLD = 0.01
"""Smallest share of the gain told as lost to checkpoints."""
LEAST_START_SHARE = 0.05
"""Smallest share of an epoch told as spent on the start of workers."""
LEAST_SAVED_S = 0.05
"""Shortest checkpoint that is told, in seconds."""
LEAST_CUT_OFF_SHARE = 0.1
"""Smallest share of the time of all trials told of a trial that was not through."""
WIDE_RATIO = 1.25
"""Ratio of the interval's ends above which a note is given."""


def notes_of(
    status: Status,
    history: History,
    winner: FinishedTrial | None,
    trials: Sequence[TrialRecord],
    finals: FinalsResult | None,
    escaped: Sequence[str] = (),
    imports: Sequence[str] = (),
    *,
    has_choice: bool = True,
    host_cap_bytes: int | None = None,
    loader: LoaderFacts | None = None,
    is_rebuilt: bool = False,
) -> tuple[str, ...]:
    """The notes of a search, as sentences.

    Args:
        status: Status of the result.
        history: The finished trials.
        winner: Winner of the finals, or the best trial without finals.
        trials: All trials, as recorded.
        finals: Result of the finals; None without finals.
        escaped: Files of the user changed or removed while the script ran.
        imports: Modules imported by the script.
        has_choice: True when the space has settings beside the script's own.
        host_cap_bytes: Most memory of the host; None without a cap.
        loader: The script's loader; None without one, or if batches differ in size.
        is_rebuilt: Whether the script builds a new loader for every epoch.
    """
    records = finals.records if finals is not None else ()
    results = [*(one.result for one in trials), *(one.result for one in records)]
    single_round = tuple(_on_single_round(status, history.baseline, trials, records))
    return (
        *_on_files(escaped),
        *_on_trackers(imports),
        *(() if single_round else _on_best_trial(status, history, trials)),
        *_on_unconfirmed(status, history, trials, finals),
        *_on_trials(status, trials, has_choice=has_choice),
        *_on_cut_off(trials, history.baseline),
        *_on_skips(history.baseline, trials),
        *single_round,
        *(finals.told if finals is not None else ()),
        *_on_ratio(finals.comparison if finals is not None else None),
        *_on_winner(winner, history.baseline, trials, records, loader=loader),
        *(_on_new_loaders(winner, trials, records) if is_rebuilt else ()),
        *growth_notes(_finals_of(winner, records), host_cap_bytes),
        *_on_kernel_searches(results),
        *_on_checkpoints(results, ours=_finals_of(winner, records), own=_finals_of(history.baseline, records)),
    )


def notes_on_search(
    study: StudyRecord, status: Status, history: History, gains: Sequence[BatchGain], budget: Budget
) -> Iterator[str]:
    """Notes on the search itself: a sufficient time, a larger batch, a script changed meanwhile.

    Args:
        study: The study, with the facts of the probe.
        status: Status of the result.
        history: The finished trials.
        gains: Rates at larger batches.
        budget: Time of the search.
    """
    spec, facts = study.spec, study.facts
    assert facts is not None
    if status is Status.TOO_SHORT and history.baseline is not None:  # Without, the reason for the end has the time.
        enough = format_minutes(enough_s(budget, history, facts))
        trials = f", and --trials {ENOUGH_TRIALS} or more" if spec.max_trials is not None else ""
        yield f"About --time {enough} is enough to compare one other setting with yours{trials}."
    mapped = mapped_settings(all_maps(spec.maps, facts))
    why_fixed = why_no_split(facts, splits_batch_norm=spec.allow_batchnorm_accumulation, mapped=mapped)
    why_fixed = why_fixed or why_no_free_batch(facts, is_declared=spec.samples_per_step is not None)
    if facts.first_grad_norm == 0.0:
        yield "The script's first step has gradients of zero: it may learn nothing. Its speed is measured all the same."
    if gain := describe(gains, can_search=not why_fixed):
        yield gain
    if changes := changed_code(spec, study.fingerprint):
        yield f"The trials ran several versions of the script, since {'; '.join(changes)} meanwhile. Search again."


def _on_files(escaped: Sequence[str]) -> Iterator[str]:
    if escaped:
        yield (
            f"{changed_words(escaped)}. Look whether they are as they should be; autotune doctor says how they can be "
            "protected here."
        )


def _on_trackers(imports: Sequence[str]) -> Iterator[str]:
    """A note on the experiment trackers imported by the script."""
    found = sorted({TRACKERS[name] for name in imports if name in TRACKERS})
    if found:
        yield (
            f"The script imports {', '.join(found)}. Its own variables put it offline in the probe and in trials; a "
            'mode that the script sets itself, as in wandb.init(mode="online"), wins over those. Look there for runs of'
            " this search: of the probe, and of trials that had a network."
        )


def _on_ratio(comparison: Comparison | None) -> Iterator[str]:
    """A note on a wide interval from differing rounds; the finals tell of a wide interval from a shared process."""
    if comparison is not None and 2 * comparison.noise_half > math.log(WIDE_RATIO):
        yield (
            f"The {comparison.num_rounds} rounds of the finals differ, so the interval is wide. On a quiet machine, or "
            "with more --time, it is narrower."
        )


def _on_cut_off(trials: Sequence[TrialRecord], baseline: FinishedTrial | None) -> Iterator[str]:
    """A trial that took much of the time without a measurement, as the first build of a compiled model may."""
    all_s = sum(record.result.wall_s for record in trials)
    measured = {record.settings for record in trials if record.result.measurement is not None}
    own_compile = baseline is not None and baseline.settings.compile
    for record in trials:
        took_s, is_cut_off = record.result.wall_s, record.result.reason == TIME_RAN_OUT
        if is_cut_off and record.settings not in measured and took_s >= LEAST_CUT_OFF_SHARE * all_s:
            build = ", which compiles the model," if record.settings.compile and not own_compile else ""
            yield (
                f"Trial {record.number}{build} was ended after {format_seconds(took_s)} without a measurement, because "
                "the time for trials was over. More --time measures it."
            )


def _on_skips(baseline: FinishedTrial | None, trials: Sequence[TrialRecord]) -> Iterator[str]:
    """A note on a script that skips many of its own steps."""
    is_measured = baseline is not None and baseline.outcome.is_complete
    own = [record for record in trials if is_measured and baseline is not None and record.number == baseline.number]
    skipped = [why for record in own for rank in record.result.ranks if (why := why_skipped(rank))]
    if skipped:
        yield (
            f"Under the script's own settings {skipped[0]} All settings are compared by the speed of all steps, with "
            "the skipped ones."
        )


def _on_single_round(
    status: Status, baseline: FinishedTrial | None, trials: Sequence[TrialRecord], records: Sequence[FinalRecord]
) -> Iterator[str]:
    """The ratio of the only round, when the time allowed one round: a hint, without an interval.

    The round is one of the finals, or the trials themselves.
    """
    if status is not Status.TOO_SHORT or baseline is None:
        return
    rates: dict[int, dict[int, float]] = {}
    for record in records:
        if record.result.outcome is Outcome.OK and record.result.measurement is not None:
            rates.setdefault(record.number, {})[record.round] = record.result.measurement.samples_per_second
    own = {index: rate for index, rate in rates.pop(baseline.number, {}).items() if rate}
    common = {number: own.keys() & of_one.keys() for number, of_one in rates.items()}
    if max(map(len, common.values()), default=0) != 1:
        return
    ratios = {number: rates[number][index] / own[index] for number, rounds in common.items() for index in rounds}
    number, ratio = max(ratios.items(), key=lambda one: one[1])
    of_trials = [record.result for record in trials]
    told = [record for record in records if record.number == number and record.round in common[number]]
    is_run = any(record.result not in of_trials for record in told)
    where, confirmed = ("only round of the finals", "a second") if is_run else ("trials alone", "finals")
    yield (
        f"In the {where} trial {number} was {ratio:.2f}x as fast as yours, not confirmed by {confirmed}. "
        "One run of each says nothing of the noise, so yours are kept; more --time allows more rounds."
    )


def _on_winner(
    winner: FinishedTrial | None,
    baseline: FinishedTrial | None,
    trials: Sequence[TrialRecord],
    records: Sequence[FinalRecord],
    *,
    loader: LoaderFacts | None,
) -> Iterator[str]:
    compiling = compile_note(winner, baseline, trials, records, loader=loader)
    if compiling:
        yield compiling
    gaps = dict.fromkeys(result.parity_gap for result in _finals_of(winner, records))
    yield from (NOT_CLAIMED[gap] for gap in gaps if gap is not None)


def _on_new_loaders(
    winner: FinishedTrial | None, trials: Sequence[TrialRecord], records: Sequence[FinalRecord]
) -> Iterator[str]:
    """What the start of the workers takes of an epoch, when every epoch has a new loader."""
    of_trials = [record.result for record in trials if winner is not None and record.number == winner.number]
    measured = [result.measurement for result in _finals_of(winner, records) or of_trials if result.measurement]
    starts_s = [one.restart_s for one in measured if one.restart_s is not None]
    epochs_s = [one.restart_s + one.epoch_s for one in measured if one.restart_s is not None and one.epoch_s]
    if starts_s and epochs_s and median(starts_s) >= LEAST_START_SHARE * median(epochs_s):
        yield (
            "The script builds a new DataLoader for every epoch: the start of the workers takes "
            f"{median(starts_s):.2f} s of an epoch of {median(epochs_s):.2f} s. Build it once, before the loop over "
            "epochs, with persistent_workers=True, and search again."
        )


def _on_kernel_searches(results: Sequence[TrialResult]) -> Iterator[str]:
    left_out_s = [result.left_out_s for result in results]
    if most_s := max(left_out_s, default=0.0):
        seen = f"In {sum(map(bool, left_out_s))} of {len(results)} measurements"
        yield (
            f"{seen} cuDNN searched kernels for new sizes of the model's inputs. The rates leave these steps out, "
            f"up to {format_seconds(most_s)} of a measurement: a real run searches once for each size."
        )


def _on_checkpoints(
    results: Sequence[TrialResult], *, ours: Sequence[TrialResult] = (), own: Sequence[TrialResult] = ()
) -> Iterator[str]:
    """Tells of checkpoints in windows, whether rates include checkpoints, and how much of the gain checkpoints take.

    Args:
        results: Results of trials and of finals in the order of measuring; a trial that counts as a final is given
            twice.
        ours: The winner's results in the finals.
        own: Results of the script's own settings in the finals.
    """
    took_s, measured, num_saved, num_whole = list[float](), list[TrialResult](), 0, 0
    for result in results:
        if result.measurement is None or not result.measurement.num_blocks or result in measured:
            continue
        measured.append(result)
        ranks = [rank.blocks for rank in result.ranks]
        windows = [[block for block in blocks if block.phase is Phase.WINDOW] for blocks in ranks]
        saving = max(([block for block in window if block.num_saves] for window in windows), key=len, default=[])
        if not saving:
            continue
        num_saved += 1
        num_whole += without_checkpoints(ranks) == windows
        plain_s = [block.duration_s for window in windows for block in window if not block.num_saves]
        took_s += [max(0.0, block.duration_s - median(plain_s)) for block in saving if plain_s]
    if not num_saved or (not num_whole and took_s and max(took_s) < LEAST_SAVED_S):
        return
    seconds = f", which took {median(took_s):.1f} s" if took_s else ""
    seen = f"In {num_saved} of {len(measured)} measurements the script saved a checkpoint{seconds}."
    if num_whole:
        yield f"{seen} The rates of {num_whole} of them include it: they have too few steps, or too many checkpoints."
    else:
        yield f"{seen} The rates leave it out.{_gain_lost(results, ours, own, median(took_s)) if took_s else ''}"


def _gain_lost(
    results: Sequence[TrialResult], ours: Sequence[TrialResult], own: Sequence[TrialResult], took_s: float
) -> str:
    """How much of the gain is lost to checkpoints as often as the script's first; empty below LEAST_TOLD."""
    num_steps, step_s, own_step_s = _steps_to_checkpoint(results), _step_s(ours), _step_s(own)
    if num_steps is None or step_s is None or own_step_s is None:
        return ""
    left = (num_steps * own_step_s + took_s) / (num_steps * step_s + took_s) / (own_step_s / step_s)
    if left > 1 - LEAST_TOLD:
        return ""
    return (
        f" The first one came after about {num_steps:,} steps; with one as often, the ratio to your settings is "
        f"{1 - left:.0%} smaller than told here. Save less often, or in the background."
    )


def _steps_to_checkpoint(results: Sequence[TrialResult]) -> int | None:
    """Optimizer steps of a process before its first checkpoint, as the median over processes; None without one."""
    found, num_steps, has_saved = list[int](), 0, False
    for number, result in enumerate(results):
        if result in results[:number]:
            continue  # a trial that counts as a final
        if not result.is_live:
            num_steps, has_saved = 0, False
        rank = result.ranks[0] if result.ranks else None
        before = num_steps
        for block in rank.blocks if rank is not None else ():
            before += block.num_steps
            if block.num_saves and not has_saved:
                has_saved = True
                found.append(before)
        num_steps += rank.num_steps if rank is not None else 0
    return round(median(found)) if found else None


def _step_s(results: Sequence[TrialResult]) -> float | None:
    """Seconds of an optimizer step in the windows, checkpoints left out; None without a measurement."""
    blocks = [block for result in results for rank in result.ranks[:1] for block in rank.blocks]
    plain = [block for block in blocks if block.phase is Phase.WINDOW and not block.num_saves]
    num_steps = sum(block.num_steps for block in plain)
    return sum(block.duration_s for block in plain) / num_steps if num_steps else None


def _finals_of(winner: FinishedTrial | None, records: Sequence[FinalRecord]) -> list[TrialResult]:
    """The winner's results in the finals."""
    return [record.result for record in records if winner is not None and record.number == winner.number]


def _on_best_trial(status: Status, history: History, trials: Sequence[TrialRecord]) -> Iterator[str]:
    """The fastest trial of a search that confirms nothing, as listed: the finals' runs are left out."""
    if status is not Status.INTERRUPTED and (status is not Status.TOO_SHORT or len(trials) < 2):
        return
    rates = {
        record.number: record.result.measurement.samples_per_second for record in trials if record.result.measurement
    }
    baseline = history.baseline
    best = max(history.feasible, key=lambda trial: rates.get(trial.number, 0.0), default=None)
    rate = rates.get(best.number) if best is not None else None
    own = rates.get(baseline.number) if baseline is not None else None
    if best is None or not rate or (own is not None and rate <= own):
        return
    ratio = f", {rate / own:.2f}x the trial of your own settings" if own else ""
    yield f"Best single trial, not confirmed by finals: trial {best.number} at {format_rate(rate)} per second{ratio}."


def _on_unconfirmed(
    status: Status, history: History, trials: Sequence[TrialRecord], finals: FinalsResult | None
) -> Iterator[str]:
    """A trial plainly faster than the trials of all contenders of the finals, without a run in the finals."""
    if status not in (Status.IMPROVED, Status.NO_GAIN) or finals is None or not finals.records:
        return
    feasible = {trial.number for trial in history.feasible}
    rates = {
        record.number: record.result.measurement.samples_per_second
        for record in trials
        if record.result.measurement and record.number in feasible
    }
    contenders = finals.measured | {record.number for record in finals.records}
    fastest = max(rates, key=lambda number: rates[number], default=None)
    if fastest is None or fastest in contenders or not contenders & rates.keys():
        return
    if rates[fastest] < LEAST_LIKELY_GAIN * max(rates[number] for number in contenders & rates.keys()):
        return
    own = rates.get(history.baseline.number) if history.baseline is not None else None
    ratio = f", {rates[fastest] / own:.2f}x the trial of your own settings" if own else ""
    yield (
        f"Trial {fastest} was the fastest single trial{ratio}, and did not run in the finals, so its rate is not "
        "confirmed."
    )


def _on_trials(status: Status, trials: Sequence[TrialRecord], *, has_choice: bool) -> Iterator[str]:
    if status is Status.NO_GAIN and not has_choice:
        yield "There was nothing to search: every setting is left out here, each for the reason that the probe gave."
    if any(record.result.measurement and record.result.measurement.is_primed for record in trials):
        yield (
            "Some trials were measured with loader queues that may have been full at the start, and may look too fast. "
            "A torch DataLoader that is built once, before the first epoch, is measured without that doubt."
        )
    ended = [record.result for record in trials if record.result.outcome is not Outcome.INTERRUPTED]
    watched = [result.surroundings for result in ended if result.surroundings is not None]
    disturbed = [found.disturbances for found in watched if found.disturbances]
    if len(disturbed) > DISTURBED_SHARE * len(watched):
        often = Counter(kind for found in disturbed for kind in found).most_common(1)[0][0]
        were = "was" if len(disturbed) == 1 else "were"
        yield (
            f"{len(disturbed)} of {len(watched)} trials {were} disturbed, for instance: {often} Single rates are off "
            "by that; a ratio of finals less so, since their runs take turns. Search again when the machine is quiet."
        )
    if any(record.result.is_near_cap for record in trials):
        yield (
            "Some trials held all that the cap allows, and lost time by giving memory back and asking again. "
            "A higher --memory-cap may be faster."
        )
