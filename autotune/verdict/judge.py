"""Judges the ending of a trial: timed out, killed, no result, unreadable result, then the result's content. Pure.

Words printed by the script never count.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, ParityGap, RankResult, RankStatus
from autotune.protocol.job import TrialJob
from autotune.units import format_bytes, format_seconds
from autotune.verdict.accumulation_parity import why_other_sum
from autotune.verdict.aggregate import measurement_of
from autotune.verdict.format_parity import NOT_CLAIMED, parity_gap, why_no_parity
from autotune.verdict.in_force import missed_settings, moved_settings, text_in_force
from autotune.verdict.skipped_steps import allowed_share, counts_skipped, why_skipped

ENDED_EARLY = "The script ended before enough was measured; give it more to do, for instance more epochs."
TOO_FEW_STEPS = "The window ended at its limit with too few steps to be judged: they took far longer than in the probe."
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which others end a process: job schedulers send them to all processes of a job, the trial's included."""
LATE_STEPS = 8
"""Number of last steps in a window to look at after a loss that is not finite. If all are skipped, the weights are not
finite either."""
TIME_RAN_OUT = "The time left for it ran out before it was through."
"""Reason of a trial ended because the search had no more time for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The ending of a trial as seen by the runner from outside."""

    exit_code: int | None
    signal: int | None
    is_start_overrun: bool = False
    is_total_overrun: bool = False
    is_time_spent: bool = False
    """True when the time left for the trial ran out before it was through."""
    is_ending_overrun: bool = False
    """True when the trial did not end in the allowed time after its window or its last report."""
    is_over_cap: bool = False
    is_over_host_cap: bool = False
    """True when a trial on a separate device held too much of the host's memory."""
    is_shared_memory_full: bool = False
    """True when the trial filled the host's shared memory."""
    is_cancelled: bool = False
    is_disk_full: bool = False
    """True when the trial was ended because the temporary space was nearly full."""
    is_supervisor_killed: bool = False
    """True when the process that runs the trial was ended from outside, without a report."""
    num_killed_by_kernel: int = 0
    """Processes of the whole machine that the kernel ended for want of memory during the trial."""
    launch_error: str = ""
    """Why the command could not be started; empty when the command was started."""
    peak_memory_bytes: int | None = None
    trained_bytes: int | None = None
    """Peak memory in bytes without the script's validation: the probe saw the validation, the trial ended earlier."""
    peak_host_bytes: int | None = None
    outside_allocator_bytes: int | None = None
    wall_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The outcome of a trial, with the reason as one sentence, and the throughput if measured."""

    outcome: Outcome
    reason: str = ""
    measurement: Measurement | None = None
    parity_gap: ParityGap | None = None
    """Reason for not claiming parity with fp32; None when parity is claimed, or not asked for."""
    lacks_host_memory: bool = False
    """True when the host's memory or shared memory ran out, and not the device's."""
    notes: tuple[str, ...] = ()
    place: str = ""
    """Place in the code of the failure."""
    missed: tuple[str, ...] = ()
    """Names of settings not in force."""
    is_inconclusive: bool = False
    """True when the trial says nothing about the settings."""


def judge(job: TrialJob, ending: Ending, ranks: Sequence[RankResult], unreadable: str = "") -> Verdict:
    """The verdict on a trial.

    Args:
        job: The job of the trial.
        ending: The ending of the trial.
        ranks: The readable reports, in order of rank.
        unreadable: Why an existing report could not be read; empty when all could.
    """
    return (
        _from_outside(job, ending, ranks)
        or _from_signal(ending, ranks)
        or _from_missing(ending, ranks, unreadable)
        or _from_error(ending, ranks)
        or _from_result(job, ending, ranks)
    )


def judge_probe(job: TrialJob, ending: Ending, ranks: Sequence[RankResult], unreadable: str = "") -> str:
    """Why a probe taught nothing, as one sentence; empty when the probe's facts can be used."""
    verdict = _from_outside(job, ending, ranks)
    if verdict is None and not any(rank.facts is not None and rank.status is RankStatus.PROBED for rank in ranks):
        verdict = (
            _from_signal(ending, ranks)
            or _from_missing(ending, ranks, unreadable)
            or _from_error(ending, ranks)
            or _never_trained(ending, ranks)
        )
    return verdict.reason if verdict is not None else ""


def is_out_of_memory(ending: Ending, ranks: Sequence[RankResult]) -> bool:
    """Whether a run failed for want of memory: ended at a cap or by the kernel, or refused by an allocator."""
    is_refused = any(rank.error is not None and rank.error.is_out_of_memory for rank in ranks)
    is_over = ending.is_over_cap or ending.is_over_host_cap or ending.is_shared_memory_full
    return is_over or is_refused or ending.num_killed_by_kernel > 0


def _from_outside(job: TrialJob, ending: Ending, ranks: Sequence[RankResult]) -> Verdict | None:
    """The verdict on a trial ended from outside before the measurement, or for too much memory at any time."""
    return _from_limits(job, ending) or (_from_above(job, ending, ranks) if not _has_measured(ranks) else None)


def _from_limits(job: TrialJob, ending: Ending) -> Verdict | None:
    """The verdict on a trial that was cancelled, could not be started, or held more memory than allowed."""
    if ending.is_cancelled:
        return Verdict(outcome=Outcome.INTERRUPTED, reason="It was ended by the tuner.")
    if ending.launch_error:
        return Verdict(outcome=Outcome.CRASHED, reason=f"It could not be started: {_first_line(ending.launch_error)}.")
    if ending.is_over_cap:
        peak = format_bytes(ending.peak_memory_bytes or 0)
        reason = f"It held {peak}, the cap is {format_bytes(job.cap_bytes)}."
        return Verdict(outcome=Outcome.OVER_CAP, reason=reason)
    if ending.is_over_host_cap:
        peak, cap = format_bytes(ending.peak_host_bytes or 0), format_bytes(job.host_cap_bytes or 0)
        reason = f"It held {peak} of the host's memory, of which a trial may have {cap}."
        return Verdict(outcome=Outcome.OVER_CAP, reason=reason, lacks_host_memory=True)
    if ending.is_shared_memory_full:
        reason = "It filled /dev/shm, through which loader workers hand over their batches."
        return Verdict(outcome=Outcome.OVER_CAP, reason=reason, lacks_host_memory=True)
    return None


def _from_above(job: TrialJob, ending: Ending, ranks: Sequence[RankResult]) -> Verdict | None:
    """The verdict on a trial ended for a reason unrelated to the trial's rate."""
    if ending.is_time_spent:
        return Verdict(outcome=Outcome.INTERRUPTED, reason=TIME_RAN_OUT)
    if ending.is_start_overrun:
        limit = format_seconds(job.start_limit_s)
        return Verdict(outcome=Outcome.TIMED_OUT, reason=f"It made no optimizer step in {limit}.")
    if ending.is_total_overrun:
        limit = format_seconds(job.total_limit_s)
        return Verdict(outcome=Outcome.TIMED_OUT, reason=f"It did not end within {limit}.")
    if ending.is_ending_overrun and not ranks:
        return Verdict(outcome=Outcome.TIMED_OUT, reason="Its window was over, and it neither reported nor ended.")
    if ending.is_disk_full:
        return Verdict(outcome=Outcome.INTERRUPTED, reason="It was ended because the temporary space was nearly full.")
    if ending.is_supervisor_killed:
        return Verdict(outcome=Outcome.INTERRUPTED, reason="It was ended from outside, with the process that runs it.")
    return None


def _from_signal(ending: Ending, ranks: Sequence[RankResult]) -> Verdict | None:
    if ending.signal is None or _has_measured(ranks):
        return None
    if ending.signal == signal.SIGABRT and any(rank.error is not None for rank in ranks):
        return None  # After an error in a kernel the device's library aborts the ending process; the report says why.
    if ending.signal == signal.SIGKILL and ending.num_killed_by_kernel:
        reason = "The kernel, short of memory, ended it with SIGKILL."
        return Verdict(outcome=Outcome.OUT_OF_MEMORY, reason=reason, lacks_host_memory=True)
    if ending.signal in FROM_OUTSIDE:
        return Verdict(
            outcome=Outcome.INTERRUPTED, reason=f"It was ended from outside with {_signal_name(ending.signal)}."
        )
    if ending.signal == signal.SIGBUS:
        reason = "It was ended by SIGBUS, as when there is no room left in shared memory."
        return Verdict(outcome=Outcome.CRASHED, reason=reason)
    return Verdict(outcome=Outcome.CRASHED, reason=f"It was ended by {_signal_name(ending.signal)}.")


def _has_measured(ranks: Sequence[RankResult]) -> bool:
    """Whether every rank was through its window before the command ended, in whatever way the command ended."""
    done = [rank for rank in ranks if rank.status in (RankStatus.MEASURED, RankStatus.RACED_OUT)]
    return bool(done) and len(done) == done[0].world_size


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _from_missing(ending: Ending, ranks: Sequence[RankResult], unreadable: str) -> Verdict | None:
    if unreadable:
        return Verdict(outcome=Outcome.CRASHED, reason=f"Its report cannot be read: {_first_line(unreadable)}.")
    if any(rank.status is RankStatus.RAISED for rank in ranks):
        return None
    if ranks and len(ranks) == ranks[0].world_size:
        return None
    if ending.num_killed_by_kernel and ending.exit_code:
        # A launcher reports the killing of a child as an exit code of the launcher's own choice.
        reason = "The kernel, short of memory, ended part of it."
        return Verdict(outcome=Outcome.OUT_OF_MEMORY, reason=reason, lacks_host_memory=True)
    if not ranks:
        reason = f"It ended with exit code {ending.exit_code} before it trained for long enough."
        return Verdict(outcome=Outcome.CRASHED, reason=reason)
    reason = f"Only {len(ranks)} of {ranks[0].world_size} ranks reported."
    return Verdict(outcome=Outcome.CRASHED, reason=reason)


def _from_error(ending: Ending, ranks: Sequence[RankResult]) -> Verdict | None:
    errors = [rank.error for rank in ranks if rank.error is not None]
    for error in errors:
        if error.is_out_of_memory:
            what = _first_line(error.message or error.kind)
            is_host = error.is_host_memory
            return Verdict(
                outcome=Outcome.OUT_OF_MEMORY, reason=f"It ran out of memory: {what}", lacks_host_memory=is_host
            )
    if not errors and any(rank.status is RankStatus.RAISED for rank in ranks):
        return Verdict(outcome=Outcome.CRASHED, reason="It raised an exception.")
    if not errors:
        return None
    what = f"{_first_line(errors[0].kind)}: {_first_line(errors[0].message)}"
    if ending.num_killed_by_kernel:
        # A killed worker shows as some error elsewhere in the script.
        reason = f"The kernel, short of memory, ended part of it: {what}"
        return Verdict(outcome=Outcome.OUT_OF_MEMORY, reason=reason, lacks_host_memory=True)
    return Verdict(outcome=Outcome.CRASHED, reason=what, place=_first_line(errors[0].place))


def _first_line(text: str) -> str:
    """The first line of a message from the user's process, at most 300 characters, without control characters."""
    line = text.strip().splitlines()[0][:300] if text.strip() else ""
    return "".join(character if character.isprintable() else " " for character in line)


def _from_result(job: TrialJob, ending: Ending, ranks: Sequence[RankResult]) -> Verdict:
    if ranks[0].num_steps == 0:
        return _never_trained(ending, ranks)
    reason = _why_invalid(job, ranks)
    if reason:
        return Verdict(outcome=Outcome.INVALID, reason=reason, missed=_missed(job, ranks))
    try:
        measurement = measurement_of(ranks, counts_skipped=counts_skipped(job, ranks))
    except (ValueError, ArithmeticError) as error:
        return Verdict(outcome=Outcome.CRASHED, reason=f"Its report is impossible: {_first_line(str(error))}.")
    if measurement is None:
        has_ended = any(rank.status is RankStatus.ENDED for rank in ranks)
        reason = ENDED_EARLY if has_ended else TOO_FEW_STEPS
        return Verdict(outcome=Outcome.INVALID, reason=reason, is_inconclusive=True)
    if ending.peak_memory_bytes is not None and ending.peak_memory_bytes > job.cap_bytes:
        return Verdict(outcome=Outcome.OVER_CAP, reason=_why_over(ending, job.cap_bytes))
    if any(rank.status is RankStatus.RACED_OUT for rank in ranks):
        return Verdict(outcome=Outcome.RACED_OUT, reason="It cannot be the fastest.", measurement=measurement)
    gap = parity_gap(job, ranks)
    notes = (NOT_CLAIMED[gap],) if gap is not None else ()
    return Verdict(outcome=Outcome.OK, measurement=measurement, parity_gap=gap, notes=notes)


def _why_over(ending: Ending, cap_bytes: int) -> str:
    peak, cap = format_bytes(ending.peak_memory_bytes or 0), format_bytes(cap_bytes)
    if ending.trained_bytes is None or ending.trained_bytes > cap_bytes:
        return f"It held {peak} at its peak, the cap is {cap}."
    trained = format_bytes(ending.trained_bytes)
    return f"It held {trained} at its peak, and needs {peak} with the script's validation; the cap is {cap}."


def _never_trained(ending: Ending, ranks: Sequence[RankResult]) -> Verdict:
    reason = f"The script ended (exit code {ending.exit_code}) without one optimizer step."
    untrained = next((rank.untrained for rank in ranks if rank.untrained), "")
    if untrained:
        return Verdict(outcome=Outcome.CRASHED, reason=f"No step was counted: {_first_line(untrained)}.")
    if num_skipped := max((rank.num_skipped_steps for rank in ranks), default=0):
        why = f"All {num_skipped:,} optimizer steps were skipped because gradients overflowed."
        return Verdict(outcome=Outcome.INVALID, reason=why)
    places = [place for rank in ranks for place in rank.empty_loaders]
    if places:
        place = _first_line(places[0])
        reason += f" The DataLoader built at {place} gave no batch: its dataset is empty, or drop_last leaves nothing."
    return Verdict(outcome=Outcome.CRASHED, reason=reason)


def has_diverged(job: TrialJob, rank: RankResult) -> bool:
    """Whether the weights or the gradients of the window were not finite, so that the script trained too little."""
    return bool(why_skipped(rank, allowed_share(job))) or (not rank.is_loss_finite and not _goes_on_after_skips(rank))


def _goes_on_after_skips(rank: RankResult) -> bool:
    """Whether a gradient scaler skipped steps in the window, as for a loss that is not finite, and trained on after."""
    window = [block for block in rank.blocks if block.phase == "window"]
    num_late, late = 0, []
    for block in reversed(window):
        if num_late >= LATE_STEPS:
            break
        late.append(block)
        num_late += block.num_steps
    is_training = any(block.num_skipped_steps < block.num_steps for block in late)
    return is_training and any(block.num_skipped_steps for block in window)


def _why_invalid(job: TrialJob, ranks: Sequence[RankResult]) -> str:
    for rank in ranks:
        if not rank.is_loss_finite and not _goes_on_after_skips(rank):
            return "The loss is not finite under these settings."
        if not rank.has_changed_parameters and not _never_learns(job):
            return "No parameter changed: it does not train under these settings."
        reason = why_skipped(rank, allowed_share(job)) or not_in_force(job, rank)
        if reason:
            return reason
    return why_no_parity(job, ranks) or why_other_sum(job, ranks)


def _never_learns(job: TrialJob) -> bool:
    """True when the script's own gradients are zero; no settings are to blame then for unchanged weights."""
    return job.facts is not None and job.facts.first_grad_norm == 0.0


def _missed(job: TrialJob, ranks: Sequence[RankResult]) -> tuple[str, ...]:
    """Names of the settings not in force on some rank."""
    return tuple(dict.fromkeys(name for rank in ranks for name in missed_settings(job, rank.observed)))


def not_in_force(job: TrialJob, rank: RankResult) -> str:
    """How observed settings differ from the job's settings, as one sentence; empty when nothing differs."""
    for name, (asked, seen) in missed_settings(job, rank.observed).items():
        if name not in rank.observed:
            return f"Asked for {name} {asked} through the script's argument, but could not see whether it is in force."
        if name == "grad_accum_steps" and isinstance(seen, float):
            why = "makes several steps with a batch" if seen < 1 else "leaves batches out, or gradients unused"
            return (
                f"Optimizer steps took {seen} batches each on average, not {asked} as asked for: the "
                f"script {why}, and the samples of a step are unknown."
            )
        return f"Asked for {name} {asked}, in force was {_shown(rank, name)}."
    if rank.observed.get("num_workers", 0) is None:
        return f"In force num_workers is {_shown(rank, 'num_workers')}."
    for name, (own, seen) in moved_settings(job, rank.observed).items():
        if not isinstance(seen, float):  # The count of batches per step is a mean.
            return f"The script changed its own {name} from {own} to {_shown(rank, name)} under these settings."
    return ""


def _shown(rank: RankResult, name: str) -> str:
    """A value in force as text, of a report that nobody trusts."""
    return _first_line(text_in_force(name, rank.observed.get(name), rank.observed_comments))
