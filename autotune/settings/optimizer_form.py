"""`optimizer_form`: the implementation behind the step of torch's own optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Features, Group, Memory, OwnLine, Setting, UsualGain, Value, chosen

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase
    from autotune.settings.data_type import Settings


class OptimizerForm(StrEnum):
    """Implementations of an optimizer's step; all compute the same update."""

    DEFAULT = "default"
    """torch's choice: `foreach` on an accelerator, `for_loop` on a CPU."""
    FOR_LOOP = "for_loop"
    """One parameter after another; needs the least memory."""
    FOREACH = "foreach"
    """One kernel per operation for all parameters."""
    FUSED = "fused"
    """One kernel for the whole update of all parameters."""


FLAGS: Mapping[OptimizerForm, Mapping[str, bool | None]] = {
    OptimizerForm.DEFAULT: {"foreach": None, "fused": None},
    OptimizerForm.FOR_LOOP: {"foreach": False, "fused": False},
    OptimizerForm.FOREACH: {"foreach": True, "fused": False},
    OptimizerForm.FUSED: {"foreach": False, "fused": True},
}
"""Arguments of an optimizer's class by form."""


def forms_of(optimizer: Any) -> tuple[str, ...]:
    """The possible forms of an optimizer; empty for classes outside torch, and for groups of parameters that differ."""
    import torch

    kind, parameters = type(optimizer), [p for group in optimizer.param_groups for p in group["params"]]
    flags = inspect.signature(kind).parameters.keys() & {"foreach", "fused"}
    is_plain = not any(
        group.get("differentiable") or (isinstance(group.get("lr"), torch.Tensor) and not group.get("capturable"))
        for group in optimizer.param_groups
    )
    if kind is not getattr(torch.optim, kind.__name__, None) or not flags or not is_plain or read(optimizer) is None:
        return ()
    can_fuse = "fused" in flags and all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)
    if kind is torch.optim.Adagrad and any(p.device.type != "cpu" for p in parameters):
        can_fuse = False  # torch has the fused kernel on a CPU alone.
    return tuple(form.value for form in OptimizerForm if form is not OptimizerForm.FUSED or can_fuse)


def forms_of_all(optimizers: Iterable[Any]) -> tuple[str, ...]:
    """The forms possible for every optimizer; empty without an optimizer."""
    each = [forms_of(optimizer) for optimizer in optimizers]
    return tuple(form.value for form in OptimizerForm if each and all(form.value in forms for forms in each))


def read(optimizer: Any) -> str | None:
    """The form of an optimizer; None when groups of parameters differ."""
    found = {(group.get("foreach"), group.get("fused")) for group in optimizer.param_groups}
    foreach, fused = found.pop() if len(found) == 1 else (None, "several")
    if fused == "several":
        return None
    if fused:
        return OptimizerForm.FUSED.value
    if foreach:
        return OptimizerForm.FOREACH.value
    return (OptimizerForm.DEFAULT if foreach is None else OptimizerForm.FOR_LOOP).value


def write(optimizer: Any, value: Any) -> None:
    """Gives an optimizer a form, between two steps; state and hyperparameters stay."""
    import torch

    flags = {name: flag for name, flag in FLAGS[OptimizerForm(value)].items() if name in optimizer.defaults}
    optimizer.defaults.update(flags)
    is_fused = bool(flags.get("fused"))
    for group in optimizer.param_groups:
        group.update(flags)
        # CUDA graphs of the script's own, and the fused kernel, count steps on the device; the rest on the host.
        is_on_device = is_fused or bool(group.get("capturable"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if isinstance(state.get("step"), torch.Tensor):
                state["step"] = state["step"].to(parameter.device if is_on_device else "cpu", torch.float32)
    if is_fused:
        optimizer._step_supports_amp_scaling = True
    else:
        vars(optimizer).pop("_step_supports_amp_scaling", None)


def _refused(case: ScriptCase) -> str:
    facts = case.facts
    if facts.num_optimizers == 0:
        return "no torch optimizer steps"
    if not facts.optimizer_forms:
        return f"the optimizer {facts.optimizer} is not one of torch's own with several forms"
    return ""


def _refused_value(case: ScriptCase, form: Any) -> str:
    if form is OptimizerForm.FUSED and case.facts.own_grad_scaler:
        return "the script's GradScaler would leave skipped steps to the kernel, where nobody can count them"
    if form in case.facts.optimizer_forms:
        return ""
    whose = "one of the script's optimizers" if case.facts.num_optimizers > 1 else f"torch's {case.facts.optimizer}"
    return f"{whose} has no such form here"


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    for form in OptimizerForm:
        reason = _refused_value(case, form)
        if reason:
            yield form.value, reason
    if case.is_cpu:
        yield OptimizerForm.FOR_LOOP.value, "it is torch's own choice on a CPU"
        yield OptimizerForm.FOREACH.value, "on a CPU it updates one parameter after another too"
    else:
        yield OptimizerForm.FOREACH.value, "it is torch's own choice on this device"


def _for_trainer(own: Settings, _: bool) -> dict[str, str] | None:
    """The Trainer's name of AdamW in this form; the Trainer has no names for the rest."""
    if own.optimizer_form is OptimizerForm.FUSED:
        return {"optim": "adamw_torch_fused"}
    return {} if own.optimizer_form is OptimizerForm.DEFAULT else None


SETTING = Setting(
    name="optimizer_form",
    group=Group.OPTIMIZER,
    default=OptimizerForm.DEFAULT,
    takes_effect="torch's own optimizers, before their first step",
    left_alone=(
        "the optimizer is not torch's own, or has tensors as rates without `capturable`; `fused` beside the script's "
        "own GradScaler"
    ),
    domain=tuple(member.value for member in OptimizerForm),
    own=lambda facts: str(facts.own_optimizer_form),
    refused=_refused,
    refused_value=_refused_value,
    dropped=_dropped,
    usual=UsualGain(value=OptimizerForm.FUSED.value, is_small=True),
    cpu_turn=4,
    memory=Memory.EITHER,
    features=Features(compute=chosen("optimizer_form", OptimizerForm.FUSED, OptimizerForm.FOR_LOOP)),
    read_of_optimizer=read,
    write_to_optimizer=write,
    frameworks={"hf": _for_trainer},
    own_lines=(OwnLine.OPTIMIZER,),
    by_hand="build the optimizer with fused=True, or with foreach=False and fused=False for for_loop",
    by_hand_off="build the optimizer without foreach and fused",
)
