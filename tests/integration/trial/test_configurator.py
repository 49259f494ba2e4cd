"""A script without a DataLoader takes its batch from variables that a configurator overrides by arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.space.offers import useful_arguments
from autotune.space.script_settings import script_settings_of
from tests.integration.trial.ground import Ground, space_of
from tests.unit.facts import cpu_machine, search_spec

CONFIGURATOR = """
import sys
from ast import literal_eval

for argument in sys.argv[1:]:
    key, value = argument.removeprefix("--").split("=")
    assert key in globals(), key
    globals()[key] = literal_eval(value)
"""
SCRIPT = """
import os
import torch

batch_size = 6
gradient_accumulation_steps = 4
max_iters = 10**9
os.chdir(os.path.dirname(os.path.abspath(__file__)))
exec(open("configurator.py").read())

torch.manual_seed(3)
data = torch.randn(4096, 16)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for iteration in range(max_iters):
    for micro_step in range(gradient_accumulation_steps):
        x = data[torch.randint(len(data), (batch_size,))]
        (torch.nn.functional.mse_loss(model(x), x) / gradient_accumulation_steps).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MAPS = (("batch_size", "--batch_size={}"), ("grad_accum_steps", "--gradient_accumulation_steps={}"))


def test_batch_and_accumulation_are_proposed_found_by_their_values_and_searched_together(ground: Ground) -> None:
    script = ground.script(SCRIPT)
    (script.parent / "configurator.py").write_text(CONFIGURATOR)
    facts = ground.probe(script)
    assert tuple((it.name, it.template) for it in facts.arguments) == MAPS
    own = script_settings_of(facts)
    assert (own.batch_size, own.grad_accum_steps, facts.argument_batch) == (6, 4, 6)
    assert "--map" in dict(space_of(facts).refused)["batch_size"]
    assert useful_arguments(facts, cpu_machine(), search_spec()) == facts.arguments
    space = space_of(facts, maps=MAPS)
    splits = {one.batch_size: one.grad_accum_steps for one in map(space.settings, _splits(space))}
    assert splits == {1: 24, 2: 12, 3: 8, 4: 6, 6: 4, 8: 3, 12: 2, 24: 1}


def _splits(space):
    return [{**space.params(space.script_settings), "split": index} for index in space.allowed["split"]]


@pytest.mark.parametrize(("size", "steps"), [(6, 4), (24, 1), (3, 8)])
def test_a_split_by_arguments_is_in_force_and_read_back_from_the_models_inputs(
    ground: Ground, size: int, steps: int
) -> None:
    script = ground.script(SCRIPT)
    (script.parent / "configurator.py").write_text(CONFIGURATOR)
    facts = ground.probe(script)
    arguments = [template.format(value) for (_, template), value in zip(MAPS, (size, steps), strict=True)]
    mapped = {"mapped": tuple(name for name, _ in MAPS)}
    run = ground.trial(script, facts, *arguments, job=mapped, batch_size=size, grad_accum_steps=steps)
    assert run.outcome == "ok", run.verdict
    assert (run.rank.observed["batch_size"], run.rank.observed["grad_accum_steps"]) == (size, steps)
    wrong = ground.trial(script, facts, job=mapped, batch_size=12, grad_accum_steps=2)
    assert wrong.outcome == "invalid", "the arguments were left out"


def test_a_script_that_executes_another_file_has_no_such_arguments(ground: Ground) -> None:
    script = ground.script(SCRIPT)
    (script.parent / "configurator.py").write_text("learning_rate = 1.0")
    facts = ground.probe(script)
    assert facts.arguments == () and facts.argument_batch is None
    assert replace(script_settings_of(facts)).batch_size is None
