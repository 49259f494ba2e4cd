"""Arguments of the script that can stand for settings: what the probe sees, and trials that are given them."""

from __future__ import annotations

import pytest

from autotune.model.facts import ArgumentFacts
from autotune.model.maps import all_maps, mapped_arguments, mapped_settings
from autotune.model.outcome import Outcome
from autotune.space.script_settings import script_settings_of
from tests.integration.trial.ground import Ground

LOOP = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("-j", "--workers", type=int, default=1)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
parser.add_argument("--epochs", type=int, default=1000)
args = parser.parse_args()
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
LOADER
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(args.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.amp):
            loss = torch.nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
"""
DIRECT = "loader = DataLoader(data, args.batch_size, num_workers=args.workers)"
THROUGH_A_DICT = "loader = DataLoader(data, **{'batch_size': args.batch_size, 'num_workers': args.workers})"
DEAF = "loader = DataLoader(data, 8, num_workers=1)"


OF_TYPER = """
import torch
import typer
from torch.utils.data import DataLoader, TensorDataset


def main(batch_size: int = 8, workers: int = 1, amp: bool = False) -> None:
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size, num_workers=workers)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(1000):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


typer.run(main)
"""


def found(ground: Ground, loader: str, *arguments: str) -> dict[str, ArgumentFacts]:
    facts = ground.probe(ground.script(LOOP.replace("LOADER", loader)), *arguments)
    return {it.name: it for it in facts.arguments}


def test_an_argument_that_stands_in_the_loaders_own_call_is_taken(ground: Ground) -> None:
    arguments = found(ground, DIRECT)
    assert arguments["num_workers"] == ArgumentFacts(name="num_workers", template="--workers={}", is_taken=True)
    # Learning rates may follow from a batch size, so it is only proposed.
    assert arguments["batch_size"] == ArgumentFacts(name="batch_size", template="--batch-size={}", is_taken=False)
    assert arguments["precision.fp16"].template == "--amp"
    assert arguments["precision.bf16"].template == "--dtype=bfloat16"
    assert set(arguments) == {"num_workers", "batch_size", "precision.fp16", "precision.bf16"}


def test_what_cannot_be_seen_to_reach_the_loader_is_only_proposed(ground: Ground) -> None:
    assert not found(ground, THROUGH_A_DICT)["num_workers"].is_taken


def test_options_of_click_and_typer_are_proposed(ground: Ground) -> None:
    facts = ground.probe(ground.script(OF_TYPER), "--workers=2")
    assert {(it.name, it.template, it.is_taken) for it in facts.arguments} == {
        ("batch_size", "--batch-size={}", False),
        ("num_workers", "--workers={}", False),
        ("precision.fp16", "--amp", False),
    }


def test_an_argument_with_another_value_than_the_loaders_is_none_for_it(ground: Ground) -> None:
    assert "num_workers" not in found(ground, DEAF, "--workers=2")


def test_a_trial_is_given_its_workers_as_an_argument_and_the_rest_at_the_seam(ground: Ground) -> None:
    script = ground.script(LOOP.replace("LOADER", DIRECT))
    facts = ground.probe(script)
    maps = all_maps((), facts)
    changes = {"num_workers": 2, "prefetch_factor": 4}
    script_settings = script_settings_of(facts)
    words = mapped_arguments(script_settings.from_dict({**script_settings.to_dict(), **changes}), script_settings, maps)
    assert words == ("--workers=2",)
    run = ground.trial(script, facts, *words, job={"mapped": tuple(mapped_settings(maps))}, **changes)
    assert run.outcome is Outcome.OK, run.verdict
    assert (run.rank.observed["num_workers"], run.rank.observed["prefetch_factor"]) == (2, 4)


@pytest.mark.parametrize("loader", [DEAF])
def test_a_mapped_value_that_is_not_in_force_makes_the_trial_invalid(ground: Ground, loader: str) -> None:
    script = ground.script(LOOP.replace("LOADER", loader))
    facts = ground.probe(script)
    run = ground.trial(script, facts, "--workers=2", job={"mapped": ("num_workers",)}, num_workers=2)
    assert run.outcome is Outcome.INVALID
    assert run.verdict is not None and run.verdict.reason == "Asked for num_workers 2, in force was 1."
