"""Workers of an unedited script's loader under settings of their own, measured in trials."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.integration.trial.ground import Ground, space_of

HAS_ORDER = "in_order" in inspect.signature(DataLoader.__init__).parameters
SCRIPT = """
import os
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 2048
    def __getitem__(self, index):
        return torch.full((16,), float(index)), torch.zeros(4)

def train():
    torch.manual_seed(3)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = DataLoader(Rows(), batch_size=16, shuffle=True, num_workers=2)
    for epoch in range(999):
        for inputs, targets in loader:
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()

if __name__ == "__main__":
    train()
"""


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"in_order": False}, marks=pytest.mark.skipif(not HAS_ORDER, reason="torch 2.6 brought it")),
        {"multiprocessing_context": "forkserver"},
        {"worker_threads": 1, "free_workers": True},
    ],
    ids=str,
)
def test_a_setting_of_the_workers_is_in_force_in_a_trial(ground: Ground, changes: dict[str, Any]) -> None:
    script = ground.script(SCRIPT)
    facts = ground.probe(script)
    assert facts.loader is not None and facts.loader.is_shuffled
    assert space_of(facts).allowed["in_order"] == ((True, False) if HAS_ORDER else (True,))
    run = ground.trial(script, facts, **changes)
    assert run.outcome == "ok", run.verdict
    assert {name: run.rank.observed[name] for name in changes} == changes
