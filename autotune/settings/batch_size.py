"""`batch_size`: samples of a forward-backward pass on a single device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from autotune.settings.fit_arrays import batch_size_in
from autotune.settings.setting import Arguments, Features, Group, KerasSeams, Memory, OwnLine, Setting

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase
    from autotune.settings.data_type import Settings

USUAL_MICRO_BATCH = 16
"""Around this size a micro-step's own cost and the cost of its samples are usually alike."""


def why_no_single_step(case: ScriptCase) -> str:
    """Why backward and step cannot be separated soundly; empty when possible."""
    facts = case.facts
    if "deepspeed" in facts.notes:
        return "DeepSpeed's engine accumulates, scales and clips by its own config"
    if "steps_copies" in facts.notes:
        return "the optimizer steps copies of the weights, which get their gradients in a way of the script's own"
    if facts.num_optimizers == 0:
        return "no torch optimizer steps: the script updates its parameters by hand"
    if facts.num_optimizers > 1:
        return f"the script steps {facts.num_optimizers} optimizers, whose gradients would mix"
    if facts.uses_closure:
        return "the script steps with a closure"
    if facts.num_backwards_per_step != facts.num_micro_batches_per_step:
        return f"the script runs {facts.num_backwards_per_step} backward passes per optimizer step"
    return ""


def _why_no_split_in_keras(keras: Any) -> str:
    """Why Keras cannot divide the batch; empty when it can."""
    if keras.own_train_step:
        return "the model has a train_step of its own"
    if keras.accumulates > 1:
        return f"the script accumulates by itself, {keras.accumulates} micro-batches per step"
    if keras.data != "arrays":
        return f"the batches come from the script's own data ({keras.data}), not from fit's batch_size"
    return "a callback of the script's own acts after every batch" if keras.has_batch_callbacks else ""


def why_no_split(case: ScriptCase) -> str:
    """Why the batch cannot be divided into micro-batches soundly; empty when possible."""
    facts, loader = case.facts, case.facts.loader
    if facts.keras is not None and (reason := _why_no_split_in_keras(facts.keras)):
        return reason
    if facts.num_batch_norms and not case.splits_batch_norm:
        return (
            f"the model has {facts.num_batch_norms} BatchNorm layers, whose statistics change with the micro-batch "
            "(--allow-batchnorm-accumulation)"
        )
    if case.is_claimed(Group.BATCH):
        return ""
    if "several_loaders" in facts.notes:
        return "several loaders train side by side"
    if loader is not None and loader.batch_sampler == "custom" and "batch_size" not in case.mapped:
        return "the script has a batch sampler of its own"
    if loader is not None and loader.batch_sampler == "none":
        return "the loader does not batch: its dataset does"
    if loader is None and facts.argument_batch is not None:
        is_mapped = {"batch_size", "grad_accum_steps"} <= set(case.mapped)
        return "" if is_mapped else "the script takes its batch from its arguments (--map)"
    if loader is None or loader.batch_size is None:
        return "the batch size is not known from a torch DataLoader"
    if "grad_accum_steps" in case.mapped:
        return ""  # The script accumulates as it is told.
    if facts.num_micro_batches_per_step > 1:
        return _why_not_taken_over(facts)
    if facts.schedule_follows_length:
        return "the learning rate's schedule takes its length from the loader's, which would count micro-batches"
    return why_no_single_step(case) or _why_no_sum(facts.loss_reduction)


def _why_not_taken_over(facts: Any) -> str:
    """Why the script's own accumulation stays as it is; empty when a trial can change the script's variable."""
    number = facts.num_micro_batches_per_step
    if not facts.accumulation_variable:
        return f"the script accumulates by itself, {number} micro-batches per step, in a loop of a shape of its own"
    if facts.loss_targets_vary:
        return "the loss is a mean over targets of which micro-batches have different numbers"
    if facts.schedule_follows_length:
        return "the learning rate's schedule takes its length from the loader's, which would count micro-batches"
    return ""


def _why_no_sum(loss_reduction: str) -> str:
    """Why the losses of micro-batches do not add up to the loss of the batch; empty when the sum is right."""
    if loss_reduction == "unknown":
        return (
            "the batch in parts had another loss or gradient than the whole batch: a sample's loss may depend on the "
            "other samples, or on random numbers"
        )
    if loss_reduction == "indivisible":
        return "the batch divides only into single samples, or nearly so"
    if loss_reduction == "no_time":
        return "the search's time does not suffice for a first step with the batch in parts (--time)"
    if loss_reduction == "failed":
        return "the script failed in a first step with the batch in parts"
    if loss_reduction == "token_mean":
        return "the loss is a mean over targets of which micro-batches have different numbers"
    return ""


def _trends(own: Settings) -> tuple[float, ...]:
    size = own.batch_size or 1
    return 0.5 * math.log2(size), -math.log1p(USUAL_MICRO_BATCH / size)


def _read_of_loader(loader: Any) -> int | None:
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) and size > 0 else None


def _at_fit(value: Any, fit: dict[str, Any]) -> None:
    """Divides the batch that `fit` cuts from arrays; an epoch of a fixed number of batches gets as many more."""
    before = batch_size_in(fit)
    if before is None:
        return
    if fit.get("steps_per_epoch"):
        fit["steps_per_epoch"] = fit["steps_per_epoch"] * before // value
    fit["batch_size"] = value


def _read_of_fit(_: Any, fit: Mapping[str, Any]) -> int | None:
    size = fit.get("batch_size")
    return size if isinstance(size, int) else None


def _as(name: str) -> Callable[[Settings, bool], dict[str, Any]]:
    """The argument of a framework; none while the batch is unknown."""
    return lambda own, _: {} if own.batch_size is None else {name: own.batch_size}


def _of_loader(own: Settings, _: bool) -> dict[str, Any]:
    return {} if own.batch_size is None else {"loader": {"batch_size": own.batch_size}}


SETTING = Setting(
    name="batch_size",
    group=Group.BATCH,
    default=None,
    frameworks_of_scripts=("torch", "keras"),
    takes_effect="loader and loss; in Keras scripts `fit`; the product with `grad_accum_steps` is held fixed",
    left_alone=(
        "BatchNorm (unless `--allow-batchnorm-accumulation`), several optimizers, closures, own accumulation in an "
        "unusual loop, a loss that is neither mean nor sum"
    ),
    bounds=(1, 10**8),
    most_searched=1 << 20,
    own=lambda facts: facts.argument_batch if facts.loader is None else facts.loader.batch_size,
    refused=why_no_split,
    memory=Memory.MORE,
    changes_graph=True,
    decides_training=True,
    features=Features(trends=_trends),
    arguments=Arguments(
        numbers=("batch_size", "batchsize", "train_batch_size", "micro_batch_size", "per_device_train_batch_size"),
        of_trainer="per_device_train_batch_size",
    ),
    read_of_loader=_read_of_loader,
    keras=KerasSeams(at_fit=_at_fit, read=_read_of_fit),
    frameworks={
        "hf": _as("per_device_train_batch_size"),
        "lightning": _of_loader,
        "accelerate": _of_loader,
        "deepspeed": _as("train_micro_batch_size_per_gpu"),
    },
    own_lines=(OwnLine.LOADER, OwnLine.MICRO_BATCHES, OwnLine.BACKWARD),
    by_hand="pass it to the DataLoader, or to fit of Keras",
)
