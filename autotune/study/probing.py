"""Runs the probe for searches, dry runs, recordings and diagnoses: facts of the script, and the loss's reduction."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath
from statistics import fmean, stdev

from autotune.errors import AutotuneError, EveryTrialFailedError, NoFeasibleSettingsError, UsageError
from autotune.model.events import Notice, OnEvent, ProbeFinished, ProbeStarted
from autotune.model.facts import ArgumentFacts, LossReduction, ScriptFacts, samples_unit
from autotune.model.maps import all_maps, mapped_settings, target_of
from autotune.model.result import ProbeResult, last_lines
from autotune.model.storage_traps import trap_text
from autotune.protocol.job import TrialJob
from autotune.runner.opened_workspace import errors_for_the_user
from autotune.runner.runner import Runner
from autotune.runner.unseen_processes import ignores_environment
from autotune.sandbox.workspace import Workspace
from autotune.settings import Group
from autotune.space.derive import derive_space
from autotune.space.offers import useful_arguments
from autotune.space.refusals import why_no_split, why_not_a_trainer
from autotune.space.script_settings import script_settings_of
from autotune.space.search_space import SearchSpace
from autotune.spec import SearchSpec
from autotune.store.secrets import mask_arguments, mask_text
from autotune.study.jobs import Jobs
from autotune.study.progress import ProgressTeller
from autotune.study.protection_record import changed_words
from autotune.study.stop import StopRequest, wait_for
from autotune.study.target import Target
from autotune.units import format_seconds

AGREEMENT = 0.2
"""Largest relative difference up to which a split loss counts as equal to the whole loss: dropout and augmentation draw
other numbers for the parts."""
GRADIENT_AGREEMENT = 0.35
"""Relative difference up to which the norms of two gradients count as equal."""
NOISE_FACTOR, LEAST_NOISE = 4.0, 0.03
"""Allowed difference of the mean loss of four parts or more from the whole loss: so many standard errors, and a share
of the loss for other noise. A contrastive loss of weight 0.5 beside a loss of classes differs by 0.14 in sixteenths."""
PARTS_WITH_NOISE = 4
"""Fewest parts that show the noise of a loss."""
MOST_PARTS = 16
"""Most parts of the batch, if it divides into so few. The loss of a contrastive pair grows with the logarithm of the
batch, so that halves of 4,096 pairs have 0.92 of the whole loss, sixteenths 0.67."""
SAMPLES_IN_PART = 4
"""Fewest samples of a part, if possible: of single samples scripts lose a dimension, and BatchNorm needs several."""
TOO_MANY_PARTS = 64
"""More parts would make the step many times as long."""
RUNS_OF_AN_ANSWER = 4
"""Fewest runs of a verified answer: the baseline and another trial, twice each. A step with the batch in parts comes
only if the time suffices for these runs too, each as long as the probe."""
WITHOUT_CUDA = ("not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")
"""Words of torch's errors where a script asks for CUDA without a usable GPU, with torch for the CPU and for CUDA."""
WITHOUT_OUTPUTS = (
    "A run failed where the probe did not; from now on runs find the caches that the probe filled, and nothing else of "
    "what it wrote."
)
MAKE_A_LOADER = (
    "Tune a script that trains on recorded data, or declare what one optimizer step learns from: --samples-per-step N."
)
TRAIN_ALONE = "Search a form of the script that trains in one process, without share_memory()."
WITH_NETWORK = (
    "A run failed where the probe did not; from now on runs have the machine's network, as the probe had. Services of "
    "experiment trackers may see them."
)
COPIED = (
    "The script opens {path} for update, so every trial copies the file whole: open the file to read, or name it by "
    "--writable for real writes."
)
OUT_OF_REACH = (
    "Trials cannot write to {places}, where files of another user or group lie: a script that writes there may fail. "
    "Name a place by --writable for real writes."
)
NUM_NAMED = 3
"""Most places in a notice."""
Probing = Callable[[TrialJob], ProbeResult]
"""Runs one job of a probe to the end."""


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A script after the probe, with the target that trains it."""

    spec: SearchSpec
    target: Target
    facts: ScriptFacts
    wall_s: float
    """Seconds taken by all runs of the probe."""

    @cached_property
    def space(self) -> SearchSpace:
        """The settings to search.

        Raises:
            SearchSpaceError: The ranges and fixed values of the user leave nothing to search.
        """
        return derive_space(self.facts, self.target.machine, self.spec)

    @property
    def event(self) -> ProbeFinished:
        """The end of the probe, for subscribers."""
        space = self.space
        return ProbeFinished(
            facts=self.facts,
            natural=space.script_settings,
            refused=space.refused,
            wall_s=self.wall_s,
            samples_unit=samples_unit(self.facts, self.spec.samples_per_step),
            arguments=useful_arguments(self.facts, self.target.machine, self.spec),
        )


def probe(
    spec: SearchSpec,
    target: Target,
    workspace: Workspace,
    runner: Runner,
    stop: StopRequest,
    on_event: OnEvent,
    *,
    ends_by: float | None = None,
    learns_reduction: bool = True,
) -> Probed:
    """Probes a script anew in a workspace; the later runs of the workspace see the files written by the probe.

    Args:
        spec: Names the script and the user's wishes.
        target: Place in which the script runs.
        workspace: Folder written by the probe.
        runner: Runs the script.
        stop: Ends the probe early.
        on_event: Receives the start and the progress of the probe; the caller tells the end with `Probed.event`.
        ends_by: Time at which the probe is ended, on the clock of `time.monotonic`; None = never.
        learns_reduction: Whether later trials may split the batch.

    Raises:
        UsageError: The interpreter ignores the environment, or the script trains on several devices in one process.
        EveryTrialFailedError: The script failed, never trained, or was not through in the time.
        NoFeasibleSettingsError: The script does not fit the memory.
        InterruptedError: The user asked to stop.
    """
    if places := workspace.out_of_reach:
        named = [*map(str, places[:NUM_NAMED]), *(["and more"] if places[NUM_NAMED:] else [])]
        on_event(Notice(message=OUT_OF_REACH.format(places=", ".join(named))))
    on_event(ProbeStarted())
    began = time.monotonic()
    workspace.forget_probe()
    facts = probe_script(
        Jobs(spec=spec, target=target),
        runner,
        workspace.probe_is_through,
        stop,
        on_event,
        learns_reduction=learns_reduction,
        ends_by=ends_by,
        learn_folders=lambda printed: workspace.learn_folders(printed, Path(spec.cwd)),
        afresh=lambda: start_afresh(workspace, on_event),
    )
    if reason := why_not_a_trainer(facts, is_declared=spec.samples_per_step is not None):
        raise UsageError(f"{reason}.", TRAIN_ALONE if "shared_model" in facts.notes else MAKE_A_LOADER)
    for trap in facts.loader.traps if facts.loader is not None else ():
        on_event(Notice(message=trap_text(trap)))
    for path in workspace.large_copies:
        on_event(Notice(message=COPIED.format(path=path)))
    target = target.where_it_trains(facts, spec, on_event).as_probed(facts)
    return Probed(spec=spec, target=target, facts=facts, wall_s=time.monotonic() - began)


def start_afresh(workspace: Workspace, on_event: OnEvent) -> bool:
    """Lets later runs start like the probe: without the probe's outputs, and with the network.

    Args:
        workspace: The workspace of the runs; no run is alive.
        on_event: Told of each change.

    Returns:
        Whether anything was changed.
    """
    changes = ((workspace.keep_only_caches, WITHOUT_OUTPUTS), (workspace.connect, WITH_NETWORK))
    messages = [message for change, message in changes if change()]
    for message in messages:
        on_event(Notice(message=message))
    return bool(messages)


def probe_script(
    jobs: Jobs,
    runner: Runner,
    is_through: Callable[[], None],
    stop: StopRequest,
    on_event: OnEvent = lambda event: None,
    *,
    learns_reduction: bool = True,
    ends_by: float | None = None,
    learn_folders: Callable[[str], tuple[Path, ...]] = lambda printed: (),
    afresh: Callable[[], bool] = lambda: False,
) -> ScriptFacts:
    """Runs the script unchanged, then once with the batch in parts when later trials could use parts.

    Args:
        jobs: Makes the jobs.
        runner: Runs the jobs.
        is_through: Called after the first run, whose files all later runs see.
        stop: Ends the probe early.
        on_event: Receives the progress of the runs.
        learns_reduction: Whether later trials may split the batch.
        ends_by: Time at which the probe is ended, on the clock of `time.monotonic`; None = never.
        learn_folders: Called with the output of a failed run; returns folders newly writable for the next run.
        afresh: Lets later runs start like the first; returns whether that makes a difference.

    Raises:
        UsageError: The interpreter ignores the environment.
        EveryTrialFailedError: The script failed, never trained, or was not through in the time.
        NoFeasibleSettingsError: The first steps need more than all free memory, or more than the cap on a shared
            device.
        InterruptedError: The user asked to stop.
    """
    _check_is_seen(jobs.spec)
    progress = ProgressTeller(on_event)

    def run(job: TrialJob) -> ProbeResult:
        return _run(replace(job, ends_by=ends_by), runner, stop, progress)

    began = time.monotonic()
    result = run(jobs.probe())
    if result.is_out_of_memory and jobs.target.free_cap_bytes > jobs.target.cap_bytes and not jobs.spec.share_gpu:
        # More room is enough to learn the facts; the baseline will show that the script does not fit under the cap.
        jobs = replace(jobs, target=replace(jobs.target, cap_bytes=jobs.target.free_cap_bytes))
        began = time.monotonic()
        result = run(jobs.probe())
    while result.facts is None and (folders := learn_folders(result.log_tail)):
        places = ", ".join(map(str, folders))
        on_event(Notice(message=f"The script is probed again, with layers over {places}.", is_warning=False))
        began = time.monotonic()
        result = run(jobs.probe())
    if result.facts is None:
        raise _failure(result, jobs)
    run_s = time.monotonic() - began
    facts = replace(
        result.facts,
        outside_allocator_bytes=result.outside_allocator_bytes,
        arguments=_not_mapped(result.facts, jobs.spec.maps),
        escaped=result.escaped,
    )
    with errors_for_the_user():
        is_through()
    if not learns_reduction or not _is_split_of_use(facts, jobs):
        return facts
    if ends_by is not None:
        ends_by -= RUNS_OF_AN_ANSWER * run_s
        if time.monotonic() + run_s > ends_by:
            return replace(facts, loss_reduction=LossReduction.NO_TIME)
    reduction = _reduction(facts, jobs, run)
    if reduction is LossReduction.FAILED and afresh():
        reduction = _reduction(facts, jobs, run)
    return replace(facts, loss_reduction=reduction)


def _failure(result: ProbeResult, jobs: Jobs) -> AutotuneError:
    """The error for a probe without facts."""
    if result.is_out_of_memory:
        return NoFeasibleSettingsError(
            f"The script under its own settings does not fit: {mask_text(result.reason)}",
            "Raise --memory-cap, or start from a smaller batch.",
        )
    if result.is_time_spent:
        return EveryTrialFailedError(
            f"The probe was not through in all the time of the search, {format_seconds(jobs.spec.budget_s)}: the "
            "script takes longer for its start and its first optimizer steps.",
            "Give the search more --time, or the script less to do before its first optimizer steps and in each one.",
        )
    return EveryTrialFailedError(
        f"The script did not get through its probe: {mask_text(result.reason)}", _what_to_do(result, jobs)
    )


def _check_is_seen(spec: SearchSpec) -> None:
    """Refuses a command that hides the measuring code from the script.

    Raises:
        UsageError: The interpreter ignores the environment.
    """
    option = ignores_environment(spec.command)
    if option:
        raise UsageError(
            f"{PurePath(spec.script).name} is run with {option}, which ignores the environment by which autotune "
            "measures.",
            f"Leave {option} out of the command.",
        )


def _not_mapped(facts: ScriptFacts, maps: tuple[tuple[str, str], ...]) -> tuple[ArgumentFacts, ...]:
    """Arguments for settings not mapped by the user."""
    asked = mapped_settings(maps)
    return tuple(each for each in facts.arguments if target_of(each.name, each.template)[0] not in asked)


def _what_to_do(result: ProbeResult, jobs: Jobs) -> str:
    """Advice for a script that did not train, with the end of the script's output."""
    command = shlex.join(mask_arguments(jobs.spec.command))
    advice = f"See that it trains for some optimizer steps when it is started by itself: {command}"
    if jobs.target.device.is_cpu and any(words in result.reason for words in WITHOUT_CUDA):
        advice = (
            "The script asks for CUDA, and torch finds no GPU here. Search on the machine where it trains, or start it "
            "with its own option for training on the CPU, if it has one."
        )
    printed = last_lines(mask_text(result.log_tail))
    parts = [f"The last lines that it printed:\n{printed}"] if printed else []
    if result.escaped:
        parts.append(f"{changed_words(result.escaped)}.")
    return "\n".join([*parts, advice])


def _run(job: TrialJob, runner: Runner, stop: StopRequest, progress: ProgressTeller) -> ProbeResult:
    handle = runner.start(job)
    # A probe measures nothing, so the first request to stop ends the run.
    wait_for(handle, stop, ends_at=1, now_and_then=lambda: progress.look(handle))
    result = handle.probe_result()
    if result.is_interrupted:
        raise InterruptedError
    return result


def _is_split_of_use(facts: ScriptFacts, jobs: Jobs) -> bool:
    """Whether nothing speaks against micro-batches so far, but for the unknown reduction of the loss."""
    mapped = mapped_settings(all_maps(jobs.spec.maps, facts))
    is_known = Group.BATCH in facts.claims or "grad_accum_steps" in mapped
    if facts.keras is not None or facts.accumulation_variable:
        return False  # The probe knows the reduction of Keras' losses; the script's own accumulation divides its loss.
    if is_known or facts.loader is None or (facts.loader.batch_size or 1) == 1 or facts.first_loss is None:
        return False
    summed = replace(facts, loss_reduction=LossReduction.MEAN)
    return not why_no_split(summed, splits_batch_norm=jobs.spec.allow_batchnorm_accumulation, mapped=mapped)


def _reduction(facts: ScriptFacts, jobs: Jobs, run: Probing) -> LossReduction:
    """The reduction of the loss, by one step with the batch in parts."""
    script_settings = script_settings_of(facts)
    batch_size = script_settings.batch_size
    assert batch_size is not None
    num_parts = _num_parts(batch_size, splits_batch_norm=facts.num_batch_norms > 0)
    if num_parts > TOO_MANY_PARTS:
        return LossReduction.INDIVISIBLE
    settings = replace(script_settings, batch_size=batch_size // num_parts, grad_accum_steps=num_parts)
    result = run(replace(jobs, facts=facts, script_settings=script_settings).split_probe(settings))
    if result.facts is None:
        return LossReduction.NO_TIME if result.is_time_spent else LossReduction.FAILED
    if len(result.first_losses) < num_parts:
        return LossReduction.UNKNOWN
    reduction = classify_reduction(
        whole_loss=facts.first_loss or 0.0,
        part_losses=result.first_losses[:num_parts],
        whole_norm=facts.first_grad_norm,
        mean_scaled_norm=result.facts.first_grad_norm,
    )
    varies = facts.loss_targets_vary or result.facts.loss_targets_vary
    return LossReduction.TOKEN_MEAN if reduction is LossReduction.MEAN and varies else reduction


def _num_parts(batch_size: int, *, splits_batch_norm: bool = False) -> int:
    """The number of equal parts of a batch: many, each of several samples if possible; few where BatchNorm is split."""
    divisors = [number for number in range(2, batch_size + 1) if batch_size % number == 0]
    several = [number for number in divisors if number <= MOST_PARTS and batch_size // number >= SAMPLES_IN_PART]
    return divisors[0] if splits_batch_norm or not several else several[-1]


def _agreement(part_losses: tuple[float, ...]) -> float:
    """Relative difference up to which the loss of parts counts as equal to the whole loss."""
    if len(part_losses) < PARTS_WITH_NOISE:
        return AGREEMENT
    error = stdev(part_losses) / math.sqrt(len(part_losses))
    return min(AGREEMENT, NOISE_FACTOR * error / abs(fmean(part_losses) or 1.0) + LEAST_NOISE)


def classify_reduction(
    *,
    whole_loss: float,
    part_losses: tuple[float, ...],
    whole_norm: float | None,
    mean_scaled_norm: float | None,
) -> LossReduction:
    """The reduction of a loss, from the losses of one batch and of the batch's parts.

    Args:
        whole_loss: Loss of the whole batch.
        part_losses: Losses of equal parts, before any scaling.
        whole_norm: Norm of the gradient of the whole batch; None = unknown.
        mean_scaled_norm: Norm of the sum of the parts' gradients, each scaled as for a mean; None = unknown.
    """
    num_parts = len(part_losses)
    if whole_loss == 0:
        return LossReduction.UNKNOWN
    total, agreement = sum(part_losses) / whole_loss, _agreement(part_losses)
    if abs(total / num_parts - 1) <= agreement:
        reduction, expected_norm = LossReduction.MEAN, 1.0
    elif abs(total - 1) <= agreement:
        reduction, expected_norm = LossReduction.SUM, 1.0 / num_parts
    else:
        return LossReduction.UNKNOWN
    if whole_norm and mean_scaled_norm is not None:
        norm = mean_scaled_norm / whole_norm / expected_norm
        if abs(norm - 1) > GRADIENT_AGREEMENT:
            return LossReduction.UNKNOWN
    return reduction
