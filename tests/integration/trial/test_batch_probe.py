"""The compute-only rate of larger batches, on real scripts."""

from __future__ import annotations

import pytest

from autotune.measure.block import Phase
from tests.integration.trial.ground import Ground

TRAINS = """
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

sizes = set()
model = torch.nn.Linear(12, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(400, 12), torch.randn(400, 3))
for epoch in range(1000):
    for inputs, targets in DataLoader(data, batch_size=8, num_workers=int(sys.argv[1])):
        if len(inputs) not in sizes:
            sizes.add(len(inputs))
            print("SIZE", len(inputs), flush=True)
        if "--fixed" in sys.argv and len(inputs) != 8:
            raise ValueError("this model is for batches of 8")
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("workers", "factor"), [("0", 4), ("2", 4), ("0", 1)])
def test_the_scripts_own_loop_is_given_a_batch_so_many_times_as_large_and_ends_before_the_window(
    ground: Ground, workers: str, factor: int
) -> None:
    script = ground.script(TRAINS)
    facts = ground.probe(script, workers)
    run = ground.trial(script, facts, workers, job={"batch_probe_factor": factor})
    assert run.outcome == "raced_out", f"{run.verdict} {run.output}"
    assert f"SIZE {8 * factor}" in run.output
    assert {block.phase for block in run.rank.blocks} <= {Phase.WARMUP, Phase.COMPUTE}
    compute = [block for block in run.rank.blocks if block.phase is Phase.COMPUTE]
    assert all(block.num_samples == 8 * factor * block.num_steps for block in compute)
    assert run.rank.compute_samples_per_second is not None


def test_with_accumulation_the_batch_of_every_micro_step_is_larger(ground: Ground) -> None:
    script = ground.script(TRAINS)
    facts = ground.probe(script, "0")
    run = ground.trial(script, facts, "0", job={"batch_probe_factor": 2}, batch_size=4, grad_accum_steps=2)
    assert run.outcome == "raced_out", f"{run.verdict} {run.output}"
    compute = [block for block in run.rank.blocks if block.phase is Phase.COMPUTE]
    assert compute and all(block.num_samples == 16 * block.num_steps for block in compute)


def test_a_script_that_takes_no_other_batch_says_so_and_has_no_rate(ground: Ground) -> None:
    script = ground.script(TRAINS)
    facts = ground.probe(script, "0", "--fixed")
    run = ground.trial(script, facts, "0", "--fixed", job={"batch_probe_factor": 2})
    assert run.outcome == "crashed"
    assert run.verdict is not None and run.verdict.measurement is None
