"""Models that the script trains later are found as the first ones are, and no search lasts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from autotune.settings import Precision, Settings
from autotune.trial.apply.applied import AppliedSettings
from autotune.trial.step.root_search import MOST_VAIN, SEARCH_STEPS
from autotune.trial.torch.patching import recorded, unwrap
from tests.jobs import changed
from tests.unit.facts import script_facts
from tests.unit.runner.samples import job

OWN = Settings(batch_size=8)
PLAIN_CALL = torch.nn.Module.__call__


def install(asked: Settings) -> AppliedSettings:
    applied = AppliedSettings(changed(job(), settings=asked, script_settings=OWN, facts=script_facts()))
    applied.install()
    return applied


@pytest.fixture
def applied() -> Iterator[AppliedSettings]:
    with recorded() as seams:
        installed = install(replace(OWN, precision=Precision.BF16))
        yield installed
        installed.remove()
    unwrap(seams)


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, num_steps: int = SEARCH_STEPS) -> set[torch.dtype]:
    """Formats in which the model computes."""
    formats = set[torch.dtype]()
    for _ in range(num_steps):
        outputs = model(torch.ones(2, 4))
        formats.add(outputs.dtype)
        optimizer.zero_grad()
        outputs.float().sum().backward()
        optimizer.step()
    return formats


def is_searching() -> bool:
    return torch.nn.Module.__call__ is not PLAIN_CALL


def test_each_fold_of_a_cross_validation_gets_the_settings(applied: AppliedSettings) -> None:
    held = []
    for _ in range(MOST_VAIN + 2):
        model = torch.nn.Linear(4, 3)
        held.append(optimizer_of(model))
        assert is_searching()
        assert train(model, held[-1]) == {torch.bfloat16}
        assert not is_searching()


def test_each_copied_client_of_a_federation_gets_the_settings(applied: AppliedSettings) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3))
    train(model, optimizer_of(model))
    for _ in range(6):
        client = copy.deepcopy(model)
        before = client[0].weight.clone()  # type: ignore[union-attr]
        assert train(client, optimizer_of(client), 3) == {torch.bfloat16}
        assert not torch.equal(before, client[0].weight)  # type: ignore[arg-type]


def test_another_optimizer_of_a_known_model_begins_no_search(applied: AppliedSettings) -> None:
    model = torch.nn.Linear(4, 3)
    train(model, optimizer_of(model))
    optimizer_of(model)
    assert not is_searching()


def test_optimizers_of_tensors_without_a_model_soon_begin_no_search(applied: AppliedSettings) -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = optimizer_of(model)
    train(model, optimizer)
    searches = []
    for _ in range(MOST_VAIN + 2):
        torch.optim.SGD([torch.zeros(3, requires_grad=True)])
        searches.append(is_searching())
        train(model, optimizer)
        assert not is_searching()
    assert searches == [True] * MOST_VAIN + [False] * 2


def test_the_search_ends_though_an_earlier_optimizer_is_the_counted_one(applied: AppliedSettings) -> None:
    model, later = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    counted = optimizer_of(model)
    train(model, counted)
    train(later, optimizer_of(later))
    assert applied.steps.primary is counted
    assert not is_searching()


@pytest.mark.parametrize("is_own", [False, True], ids=["by autotune", "by the script"])
def test_no_search_begins_beside_a_compiled_model(applied: AppliedSettings, is_own: bool) -> None:
    model = torch.nn.Linear(4, 3)
    train(model, optimizer_of(model))
    if is_own:
        torch.compile(model, backend="eager")
    else:
        applied._asked = replace(applied._asked, compile=True)
    optimizer_of(torch.nn.Linear(4, 3))
    assert not is_searching()


def test_settings_taken_back_begin_no_search(applied: AppliedSettings) -> None:
    model = torch.nn.Linear(4, 3)
    train(model, optimizer_of(model))
    applied.remove()
    applied.steps.begin_anew()
    optimizer_of(torch.nn.Linear(4, 3))
    assert not is_searching()
