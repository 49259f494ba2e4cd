"""The probe: what the script is, and how its loss is reduced."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath

from autotune.errors import EveryTrialFailedError, NoFeasibleSettingsError, UsageError
from autotune.model.events import Event, Notice
from autotune.model.facts import ArgumentFacts, LossReduction, ScriptFacts
from autotune.model.maps import all_maps, mapped_settings, target_of
from autotune.model.result import ProbeResult
from autotune.protocol.job import TrialJob
from autotune.runner.opened_workspace import errors_for_the_user
from autotune.runner.runner import Runner
from autotune.runner.unseen_processes import ignores_environment
from autotune.settings import Group
from autotune.space.script_settings import script_settings_of
from autotune.spec import SearchSpec
from autotune.store.secrets import mask_arguments, mask_text
from autotune.study.jobs import Jobs
from autotune.study.progress import ProgressTeller
from autotune.study.protection_record import changed_words
from autotune.study.stop import StopRequest, wait_for
from autotune.units import format_seconds

AGREEMENT = 0.2
"""Relative difference up to which a split loss (or its gradient's norm) is taken to equal the whole one: dropout and
augmentation draw other numbers for the parts."""
GRADIENT_AGREEMENT = 0.35
WITHOUT_OUTPUTS = (
    "A run failed where the probe did not; from now on runs find the caches that the probe filled, and nothing else of "
    "what it wrote."
)


def probe_script(
    jobs: Jobs,
    runner: Runner,
    is_through: Callable[[], None],
    stop: StopRequest,
    on_event: Callable[[Event], None] = lambda event: None,
    *,
    learns_reduction: bool = True,
    ends_by: float | None = None,
    learn_folders: Callable[[str], tuple[Path, ...]] = lambda printed: (),
    keep_only_caches: Callable[[], bool] = lambda: False,
) -> ScriptFacts:
    """Runs the script as it is, then once with its batch in parts where that could be of use.

    Args:
        jobs: Makes the jobs.
        runner: Runs them.
        is_through: Called after the first run: what it wrote is there for all that follow.
        stop: May end it.
        on_event: Told how the runs look.
        learns_reduction: Whether the batch will be split.
        ends_by: When all the time is spent, on the clock of `time.monotonic`; None = never.
        learn_folders: Told what a probe that failed has printed; names folders that the next run can write to, and this
            one could not.
        keep_only_caches: Drops what the first run wrote but caches; whether there was anything.

    Raises:
        UsageError: Its interpreter is told to ignore the environment.
        EveryTrialFailedError: The script failed, never trained, or was not through in the time.
        NoFeasibleSettingsError: It needs more than all that is free before its first steps are through, or more than
            the cap on a device that is shared.
        InterruptedError: A stop was asked for.
    """
    _check_is_seen(jobs.spec)
    progress = ProgressTeller(on_event)
    result = _run(replace(jobs.probe(), ends_by=ends_by), runner, stop, progress)
    if result.is_out_of_memory and jobs.target.free_cap_bytes > jobs.target.cap_bytes and not jobs.spec.share_gpu:
        # What the script is can be learned where it has room; that it has none under the cap, its baseline will show.
        jobs = replace(jobs, target=replace(jobs.target, cap_bytes=jobs.target.free_cap_bytes))
        result = _run(replace(jobs.probe(), ends_by=ends_by), runner, stop, progress)
    while result.facts is None and (folders := learn_folders(result.log_tail)):
        places = ", ".join(map(str, folders))
        on_event(Notice(message=f"The script is probed again, with layers over {places}.", is_warning=False))
        result = _run(replace(jobs.probe(), ends_by=ends_by), runner, stop, progress)
    facts = result.facts
    if facts is None:
        if result.is_out_of_memory:
            raise NoFeasibleSettingsError(
                f"The script under its own settings does not fit: {mask_text(result.reason)}",
                "Raise --memory-cap, or start from a smaller batch.",
            )
        if result.is_time_spent:
            raise EveryTrialFailedError(
                f"The probe was not through in all the time of the search, {format_seconds(jobs.spec.budget_s)}: the "
                "script takes longer for its start and its first optimizer steps.",
                "Give the search more --time, or let a step be shorter, with a smaller batch for instance.",
            )
        raise EveryTrialFailedError(
            f"The script did not train in its probe: {mask_text(result.reason)}", _what_to_do(result, jobs)
        )
    facts = replace(
        facts,
        outside_allocator_bytes=result.outside_allocator_bytes,
        arguments=_not_mapped(facts, jobs.spec.maps),
        escaped=result.escaped,
    )
    with errors_for_the_user():
        is_through()
    if not learns_reduction or not _is_split_of_use(facts, jobs):
        return facts
    reduction = _reduction(facts, jobs, runner, stop, progress, ends_by)
    if reduction is None and keep_only_caches():
        on_event(Notice(message=WITHOUT_OUTPUTS))
        reduction = _reduction(facts, jobs, runner, stop, progress, ends_by)
    return replace(facts, loss_reduction=reduction or LossReduction.UNKNOWN)


def _check_is_seen(spec: SearchSpec) -> None:
    """Refuses a command in which nothing could be measured.

    Raises:
        UsageError: Its interpreter is told to ignore the environment.
    """
    option = ignores_environment(spec.command)
    if option:
        raise UsageError(
            f"{PurePath(spec.script).name} is run with {option}, which ignores the environment by which autotune "
            "measures.",
            f"Leave {option} out of the command.",
        )


def _not_mapped(facts: ScriptFacts, maps: tuple[tuple[str, str], ...]) -> tuple[ArgumentFacts, ...]:
    """Arguments for settings that the user did not map."""
    asked = mapped_settings(maps)
    return tuple(it for it in facts.arguments if target_of(it.name, it.template)[0] not in asked)


def _what_to_do(result: ProbeResult, jobs: Jobs) -> str:
    """What may help a script that did not train, with the end of what it printed."""
    command = shlex.join(mask_arguments(jobs.spec.command))
    advice = f"See that it trains, for at least one optimizer step, when it is started by itself: {command}"
    printed = mask_text(result.log_tail.strip())
    parts = [f"The last lines that it printed:\n{printed[-2000:]}"] if printed else []
    if result.escaped:
        parts.append(f"{changed_words(result.escaped)}.")
    return "\n".join([*parts, advice])


def _run(job: TrialJob, runner: Runner, stop: StopRequest, progress: ProgressTeller) -> ProbeResult:
    handle = runner.start(job)
    # A probe measures nothing: who stops a search there does not wait for the rest of it.
    wait_for(handle, stop, ends_at=1, now_and_then=lambda: progress.look(handle))
    result = handle.probe_result()
    if result.is_interrupted:
        raise InterruptedError
    return result


def _is_split_of_use(facts: ScriptFacts, jobs: Jobs) -> bool:
    loader = facts.loader
    return (
        loader is not None
        and loader.batch_size is not None
        and loader.batch_size > 1
        and Group.BATCH not in facts.claims
        and "grad_accum_steps" not in mapped_settings(all_maps(jobs.spec.maps, facts))
        and facts.num_optimizers == 1
        and facts.num_micro_batches_per_step == 1
        and facts.num_backwards_per_step == 1
        and not facts.uses_closure
        and facts.first_loss is not None
        and (facts.num_batch_norms == 0 or jobs.spec.allow_batchnorm_accumulation)
    )


def _reduction(
    facts: ScriptFacts,
    jobs: Jobs,
    runner: Runner,
    stop: StopRequest,
    progress: ProgressTeller,
    ends_by: float | None,
) -> LossReduction | None:
    """Mean, sum or unknown: how the parts' losses and gradients of one step relate to the whole batch's.

    None where the script failed.
    """
    script_settings = script_settings_of(facts)
    batch_size = script_settings.batch_size
    assert batch_size is not None
    num_parts = next(k for k in range(2, batch_size + 1) if batch_size % k == 0)
    settings = replace(script_settings, batch_size=batch_size // num_parts, grad_accum_steps=num_parts)
    job = replace(jobs, facts=facts, script_settings=script_settings).split_probe(settings)
    result = _run(replace(job, ends_by=ends_by), runner, stop, progress)
    if result.facts is None:
        return None
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


def classify_reduction(
    *,
    whole_loss: float,
    part_losses: tuple[float, ...],
    whole_norm: float | None,
    mean_scaled_norm: float | None,
) -> LossReduction:
    """How a loss is reduced, from one batch and from its parts.

    Args:
        whole_loss: Loss of the whole batch.
        part_losses: Losses of its equal parts, before any scaling.
        whole_norm: Norm of the whole batch's gradient.
        mean_scaled_norm: Norm of the gradient summed over the parts, each scaled as for a mean.
    """
    num_parts = len(part_losses)
    if whole_loss == 0:
        return LossReduction.UNKNOWN
    total = sum(part_losses) / whole_loss
    if abs(total / num_parts - 1) <= AGREEMENT:
        reduction, expected_norm = LossReduction.MEAN, 1.0
    elif abs(total - 1) <= AGREEMENT:
        reduction, expected_norm = LossReduction.SUM, 1.0 / num_parts
    else:
        return LossReduction.UNKNOWN
    if whole_norm and mean_scaled_norm is not None:
        norm = mean_scaled_norm / whole_norm / expected_norm
        if abs(norm - 1) > GRADIENT_AGREEMENT:
            return LossReduction.UNKNOWN
    return reduction
