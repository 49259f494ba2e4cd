"""The form of an optimizer: changed between two steps with state and hyperparameters kept, and the same training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autotune.settings import Settings
from autotune.settings.optimizer_form import SETTING, OptimizerForm, forms_of, forms_of_all, read, write
from autotune.space.derive import derive_space
from tests.unit.facts import cpu_machine, gpu_machine, script_facts, search_spec

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1},
    "Adagrad": {"lr": 0.01},
}
ALL = tuple(form.value for form in OptimizerForm)


def trained(name: str, forms: list[str]) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model after three steps in each of the forms."""
    torch.manual_seed(0)
    model, inputs = torch.nn.Linear(8, 4), torch.randn(16, 8)
    optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for form in forms:
        write(optimizer, form)
        assert read(optimizer) == form
        for _ in range(3):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            schedule.step()
    return model, optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("forms", [["fused"] * 3, ["foreach"] * 3, ["default", "fused", "for_loop"]], ids=str)
def test_the_updates_are_those_of_torchs_own_choice(name: str, forms: list[str]) -> None:
    plain, reference = trained(name, ["default"] * 3)
    model, optimizer = trained(name, forms)
    for own, other in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(other, own, rtol=1e-5, atol=1e-6)
    assert [group["lr"] for group in optimizer.param_groups] == [group["lr"] for group in reference.param_groups]
    assert optimizer.state_dict()["state"].keys() == reference.state_dict()["state"].keys()


def test_groups_that_join_later_have_the_form_too() -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    write(optimizer, "fused")
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))]})
    assert read(optimizer) == "fused"


@pytest.mark.parametrize(("options", "device"), [({}, "cpu"), ({"capturable": True}, "meta")], ids=str)
def test_steps_are_counted_on_the_device_where_graphs_or_the_fused_kernel_need_it(
    options: dict[str, Any], device: str
) -> None:
    """CUDA graphs of the script's own hold the count's place."""
    weight = torch.nn.Parameter(torch.ones(2, device="meta"))
    optimizer = torch.optim.AdamW([weight], **options)
    for form, expected in (("fused", "meta"), ("foreach", device), ("for_loop", device), ("default", device)):
        optimizer.state[weight] = {"step": torch.tensor(3.0)}
        write(optimizer, form)
        assert optimizer.state[weight]["step"].device.type == expected, form
    assert all(group.get("capturable") == bool(options) for group in optimizer.param_groups)


class Own(torch.optim.Adam):
    """An optimizer of the script's."""


def parameter(**options: Any) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(2, **options))


@pytest.mark.parametrize(
    ("optimizer", "forms"),
    [
        (torch.optim.Adam([parameter()]), ALL),
        (torch.optim.Adam([parameter(dtype=torch.complex64)]), ALL[:-1]),
        (torch.optim.RMSprop([parameter()]), ALL[:-1]),
        (torch.optim.LBFGS([parameter()]), ()),
        (Own([parameter()]), ()),
        (torch.optim.Adam([parameter()], lr=torch.tensor(0.1)), ()),
        (torch.optim.Adam([parameter()], lr=torch.tensor(0.1), capturable=True), ALL),
        (torch.optim.Adam([parameter()], capturable=True), ALL),
        (
            torch.optim.SGD([{"params": [parameter()], "foreach": True}, {"params": [parameter()], "foreach": False}]),
            (),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_forms_of_an_optimizer_are_those_that_torch_has(
    optimizer: torch.optim.Optimizer, forms: tuple[str, ...]
) -> None:
    assert forms_of(optimizer) == forms
    assert forms_of_all([optimizer, torch.optim.SGD([parameter()])]) == forms
    assert forms_of_all([]) == ()


def test_a_search_tries_the_forms_that_the_device_does_not_choose_by_itself() -> None:
    on_cpu = derive_space(script_facts(optimizer_forms=ALL), cpu_machine(), search_spec())
    assert on_cpu.allowed["optimizer_form"] == ("default", "fused")
    on_cuda = derive_space(script_facts(device="cuda", optimizer_forms=ALL), gpu_machine(), search_spec())
    assert on_cuda.allowed["optimizer_form"] == ("default", "for_loop", "fused")


def test_other_optimizers_and_scalers_are_refused_by_name() -> None:
    foreign = derive_space(script_facts(optimizer="Lion"), gpu_machine(), search_spec())
    assert "Lion is not one of torch's own" in dict(foreign.refused)["optimizer_form"]
    scaled = script_facts(device="cuda", optimizer_forms=ALL, own_grad_scaler=True)
    space = derive_space(scaled, gpu_machine(), search_spec())
    assert "GradScaler" in dict(space.refused)["optimizer_form=fused"]


def test_the_scripts_own_form_is_known() -> None:
    assert SETTING.own(script_facts(own_optimizer_form="fused")) == Settings(optimizer_form="fused").optimizer_form  # type: ignore[arg-type]
