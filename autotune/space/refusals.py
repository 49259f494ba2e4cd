"""Why something of a script cannot be tuned soundly, by name: read from what the probe learned."""

from __future__ import annotations

from collections.abc import Collection

from autotune.model.facts import BatchSamplerKind, LossReduction, ScriptFacts
from autotune.settings import GROUP_OF_FIELD, Group, Precision, Settings

NO_STREAM_PREFETCH = "a copy on a side stream needs a line of the script's own: cfg.on_device(loader, device)"


def why_not_one_device(facts: ScriptFacts) -> str:
    """Why one process of the script cannot be measured on the device that it is shown; empty when it can."""
    numbers = facts.device_numbers
    if len(numbers) > 1 and "data_parallel" in facts.notes:
        return (
            f"The script spreads each batch over {len(numbers)} devices by torch.nn.DataParallel in one process, which "
            "is measured on one device at a time only"
        )
    if len(numbers) > 1:
        return (
            f"The script lays its model over {len(numbers)} devices in one process, which is measured on one device at "
            "a time only"
        )
    if numbers and facts.world_size == 1 and numbers[0] > 0:
        return f"The script trains on cuda:{numbers[0]} by its own choice, where trials show it one device, as cuda:0"
    return ""


def why_no_loader(facts: ScriptFacts) -> str:
    """Why the loader's settings are the script's affair; empty when they are ours to change."""
    if facts.loader is None:
        return "no torch DataLoader was seen to train"
    if "several_loaders" in facts.notes:
        return "several loaders train side by side, and which one to tune is not ours to guess"
    if "replays_batches" in facts.notes:
        return (
            "itertools.cycle keeps the first epoch's batches and never asks the loader for more, so that trials, which "
            "see that epoch, would overrate what loading costs (`while True: yield from loader` reads it anew)"
        )
    return ""


def why_no_workers(facts: ScriptFacts) -> str:
    """Why the training loader cannot be given workers by us; empty when it can."""
    loader = facts.loader
    if loader is None or loader.num_workers > 0:
        return ""
    if loader.is_iterable:
        return "an IterableDataset shards itself among its workers, which is the script's affair"
    if "unguarded_spawn" in facts.notes:
        return 'the script has no `if __name__ == "__main__"`, and every worker, started by spawn, would run it again'
    return ""


def why_no_samples(facts: ScriptFacts, *, is_declared: bool) -> str:
    """Why the samples of an optimizer step are not known; empty when they are.

    Args:
        facts: Of the script.
        is_declared: The user says how many there are.
    """
    if is_declared:
        return ""
    if facts.loader is None:
        return "no torch DataLoader was seen to train, so steps are counted (--samples-per-step)"
    if "several_loaders" in facts.notes:
        return "several loaders train side by side, and the samples of one are counted (--samples-per-step)"
    return ""


def why_no_single_step(facts: ScriptFacts) -> str:
    """Why backward and step cannot be taken apart soundly; empty when they can."""
    if facts.num_optimizers == 0:
        return "no torch optimizer steps: the script updates its parameters by hand"
    if facts.num_optimizers > 1:
        return f"the script steps {facts.num_optimizers} optimizers, whose gradients would mix"
    if facts.uses_closure:
        return "the script steps with a closure"
    if facts.num_backwards_per_step != facts.num_micro_batches_per_step:
        return f"the script runs {facts.num_backwards_per_step} backward passes per optimizer step"
    return ""


def why_no_split(facts: ScriptFacts, *, splits_batch_norm: bool, mapped: Collection[str]) -> str:
    """Why the batch cannot be divided into micro-batches soundly; empty when it can.

    Args:
        facts: Of the script.
        splits_batch_norm: The user allows that BatchNorm sees smaller batches.
        mapped: Settings that the script is given as arguments.
    """
    loader = facts.loader
    if facts.num_batch_norms and not splits_batch_norm:
        return (
            f"the model has {facts.num_batch_norms} BatchNorm layers, whose statistics change with the micro-batch "
            "(--allow-batchnorm-accumulation)"
        )
    if Group.BATCH in facts.claims:
        return ""
    if "several_loaders" in facts.notes:
        return "several loaders train side by side"
    if loader is not None and loader.batch_sampler is BatchSamplerKind.CUSTOM and "batch_size" not in mapped:
        return "the script has a batch sampler of its own"
    if loader is not None and loader.batch_sampler is BatchSamplerKind.NONE:
        return "the loader does not batch: its dataset does"
    if loader is None or loader.batch_size is None:
        return "the batch size is not known from a torch DataLoader"
    if "grad_accum_steps" in mapped:
        return ""  # The script accumulates as it is told.
    if facts.num_micro_batches_per_step > 1:
        return f"the script accumulates by itself, {facts.num_micro_batches_per_step} micro-batches per step"
    if facts.schedule_follows_length:
        return "the learning rate's schedule takes its length from the loader's, which would count micro-batches"
    reason = why_no_single_step(facts)
    if not reason and facts.loss_reduction is LossReduction.UNKNOWN:
        reason = "the split loss did not add up to the whole one, neither as a mean nor as a sum"
    if not reason and facts.loss_reduction is LossReduction.TOKEN_MEAN:
        reason = "the loss is a mean over targets of which micro-batches have different numbers"
    return reason


def why_no_precision(facts: ScriptFacts) -> str:
    """Why the number format cannot be changed from outside; empty when it can."""
    if facts.own_autocast is not None:
        return f"the script has its own autocast ({facts.own_autocast})"
    if facts.own_grad_scaler:
        return "the script has its own GradScaler"
    if facts.num_root_modules == 0:
        return "no module was seen to which an autocast region could be tied"
    if "format_unseen" in facts.notes:
        return "no product of matrices was seen in the model's call, by which its number format could be checked"
    return ""


def why_no_compile(facts: ScriptFacts) -> str:
    """Why the model cannot be compiled from outside; empty when it can."""
    if facts.own_compile:
        return "the script compiles by itself"
    if facts.num_root_modules == 0:
        return "no module was seen to train"
    if facts.num_root_modules > 1:
        return f"the script calls {facts.num_root_modules} modules side by side, and only one could be compiled"
    return ""


def why_no_threads(facts: ScriptFacts) -> str:
    """Why the number of threads is the script's affair; empty when it is ours to change."""
    return "the script sets torch's number of threads by itself" if facts.own_threads else ""


def why_not_unedited(
    settings: Settings,
    script_settings: Settings,
    facts: ScriptFacts,
    *,
    mapped: frozenset[str] = frozenset(),
    splits_batch_norm: bool = False,
) -> dict[str, str]:
    """Settings that cannot be put in force soundly on a script as it is, as name -> reason; knobs are left out.

    Args:
        settings: What is asked for.
        script_settings: What the script does by itself: what equals it is left alone.
        facts: What the probe learned of the script.
        mapped: Fields that the script is given as arguments.
        splits_batch_norm: The user allows that BatchNorm sees smaller batches.
    """
    by_group = {
        Group.LOADER: why_no_loader(facts),
        Group.BATCH: why_no_split(facts, splits_batch_norm=splits_batch_norm, mapped=mapped),
        Group.PRECISION: why_no_precision(facts),
        Group.MEMORY: "the script sets it by itself" if facts.own_memory_fraction else "",
        Group.THREADS: why_no_threads(facts),
    }
    by_field = {
        "num_workers": why_no_workers(facts),
        "compile": why_no_compile(facts),
        "stream_prefetch": NO_STREAM_PREFETCH,
        "precision": why_no_single_step(facts) if settings.precision is Precision.FP16 else "",
    }
    reasons: dict[str, str] = {}
    for name in settings.differences(script_settings):
        group = GROUP_OF_FIELD.get(name)
        if group is None or group in facts.claims or name in mapped:
            continue
        reason = by_group.get(group) or by_field.get(name)
        if reason:
            reasons[name] = reason
    return reasons
