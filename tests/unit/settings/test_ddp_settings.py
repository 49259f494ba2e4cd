"""Arguments of DistributedDataParallel: changed as the script wraps its model, read back, and left alone elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from autotune.settings import Settings
from autotune.settings.ddp_group import ARGUMENTS, arguments_of
from autotune.space.derive import derive_space
from autotune.trial.apply.environment_seams import apply_ranks
from autotune.trial.apply.observed import model_settings
from autotune.trial.torch.patching import recorded, unwrap
from tests.unit.facts import gpu_machine, script_facts, search_spec

TUNED = Settings(gradient_as_bucket_view=True, static_graph=True, bucket_mb=50)
OWN: tuple[tuple[str, bool | int], ...] = (
    ("bucket_mb", 25),
    ("find_unused_parameters", False),
    ("gradient_as_bucket_view", False),
    ("static_graph", False),
)


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def values_of(model: torch.nn.Module) -> dict[str, Any]:
    found = model_settings([model], None)
    return {name: found[name] for name in ARGUMENTS}


@pytest.mark.usefixtures("ranks")
def test_the_arguments_are_changed_as_the_script_wraps_its_model_and_read_back() -> None:
    plain = DistributedDataParallel(torch.nn.Linear(4, 4))
    with recorded() as seams:
        apply_ranks(arguments_of(TUNED, tuple(ARGUMENTS)))
    changed = DistributedDataParallel(torch.nn.Linear(4, 4), None, None, 0, bucket_cap_mb=10)
    unwrap(seams)
    again = DistributedDataParallel(torch.nn.Linear(4, 4))
    assert values_of(plain) == values_of(again) == {k: v for k, v in OWN if k in ARGUMENTS}
    assert values_of(changed) == {name: getattr(TUNED, name) for name in ARGUMENTS}
    for _ in range(3):
        changed.zero_grad()
        changed(torch.randn(2, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in changed.parameters())


def test_a_module_outside_of_the_wrapper_has_no_such_setting() -> None:
    assert not model_settings([torch.nn.Linear(2, 2)], None).keys() & ARGUMENTS.keys()


def space_of(**changes: Any) -> Any:
    return derive_space(script_facts(device="cuda", world_size=2, **changes), gpu_machine(), search_spec())


def test_a_search_tries_the_arguments_where_ranks_use_the_wrapper() -> None:
    space = space_of(notes=("ddp",), own_ddp=OWN)
    assert space.allowed["gradient_as_bucket_view"] == (False, True)
    assert space.allowed["static_graph"] == (False, True)
    assert len(space.allowed["bucket_mb"]) > 2


def test_without_the_wrapper_nothing_is_tried_and_nothing_is_said() -> None:
    space = space_of()
    assert all(len(space.allowed[name]) == 1 for name in ARGUMENTS)
    assert not dict(space.refused).keys() & ARGUMENTS.keys()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"own_ddp": (*OWN[:1], ("find_unused_parameters", True), *OWN[2:])}, "leave some parameters out"),
        ({"own_ddp": OWN, "num_micro_batches_per_step": 4, "num_backwards_per_step": 4}, "several backward passes"),
        ({"own_ddp": OWN, "num_root_modules": 2}, "2 modules side by side"),
    ],
)
def test_a_static_graph_is_refused_by_name_where_steps_may_differ(changes: dict[str, Any], reason: str) -> None:
    assert reason in dict(space_of(notes=("ddp",), **changes).refused)["static_graph"]
