"""Why something of a script cannot be tuned soundly, by name: read from what the probe learned."""

from __future__ import annotations

from collections.abc import Collection

from autotune.model.facts import BatchSamplerKind, LossReduction, ScriptFacts
from autotune.settings import Group


def why_no_loader(facts: ScriptFacts) -> str:
    """Why the loader's settings are the script's affair; empty when they are ours to change."""
    if facts.loader is None:
        return "no torch DataLoader was seen to train"
    if "several_loaders" in facts.notes:
        return "several loaders train side by side, and which one to tune is not ours to guess"
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
    if loader is None or loader.batch_size is None:
        return "the batch size is not known from a torch DataLoader"
    if "several_loaders" in facts.notes:
        return "several loaders train side by side"
    if loader.batch_sampler is BatchSamplerKind.CUSTOM and "batch_size" not in mapped:
        return "the script has a batch sampler of its own"
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
