"""Traps of stored datasets are named by `search` before the first trial, and by `diagnose`, with line and cure."""

from __future__ import annotations

import json

import pytest

from tests.integration.search.test_search_command import autotune, finished

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset

class Names(Dataset):
    def __init__(self):
        self.names = [str(number) for number in range(250_000)]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return torch.full((4,), float(len(self.names[index]))), index % 3

torch.set_num_threads(1)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1000):
    for inputs, targets in DataLoader(Names(), batch_size=16, num_workers=1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
"""
TRAP = "self.names at train.py:7 holds so many Python objects"
CURE = "Keep them as one array of numpy"


def test_a_search_names_a_trap_with_line_and_cure_before_the_first_trial(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    code, _, talk = finished(autotune(tmp_path, "search", "train.py", "--trials", "1", "--time", "2m", "--json"))
    assert code == 0, talk
    assert TRAP in talk and CURE in talk
    assert talk.index(TRAP) < talk.index("outcome"), "the trap is named before the table of trials"


@pytest.mark.slow
def test_a_diagnosis_names_a_trap_with_line_and_cure(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    code, output, talk = finished(autotune(tmp_path, "diagnose", "train.py", "--json"))
    assert code == 0, talk
    assert any(TRAP in note and CURE in note for note in json.loads(output)["notes"])
