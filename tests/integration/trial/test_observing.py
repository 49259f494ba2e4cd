"""What a diagnosis sees of real loops, after their window; where it is, and how often, never how long."""

from __future__ import annotations

import json
import pstats
from pathlib import Path

import pytest

from autotune.measure.block import Phase
from autotune.model.observation import Observation
from autotune.protocol.paths import PROFILE_FILES
from tests.integration.trial.ground import Ground, Run

TRAINS = """
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
FOLDER = Path("rows")


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        with open(FOLDER / f"{index}.bin", "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.float32), torch.randn(3)


def num_negative(outputs):
    count = 0
    for output in outputs:
        if output.sum().item() < 0:
            count += 1
    return count


FOLDER.mkdir(exist_ok=True)
for index in range(64):
    (FOLDER / f"{index}.bin").write_bytes(bytes(48))
sizes = set()
model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters())
seen = 0
for epoch in range(100000):
    for inputs, targets in DataLoader(Rows(), batch_size=8, num_workers=int(sys.argv[1])):
        if len(inputs) not in sizes:
            sizes.add(len(inputs))
            print("SIZE", len(inputs), flush=True)
        if "--fixed" in sys.argv and len(inputs) != 8:
            raise ValueError("this model is for batches of 8")
        optimizer.zero_grad()
        outputs = model(inputs)
        torch.nn.functional.mse_loss(outputs, targets).backward()
        optimizer.step()
        seen += num_negative(outputs)
"""
LINES = {text.strip(): number for number, text in enumerate(TRAINS.splitlines(), start=1)}


def observed(ground: Ground, *arguments: str, **job: bool) -> tuple[Run, Observation]:
    script = ground.script(TRAINS)
    facts = ground.probe(script, *arguments)
    run = ground.trial(script, facts, *arguments, job={"diagnoses": True, **job})
    assert run.outcome == "ok", f"{run.verdict} {run.output}"
    assert run.rank.observation is not None
    return run, run.rank.observation


def test_a_loop_is_seen_where_it_reads_values_files_and_its_memory(ground: Ground) -> None:
    run, seen = observed(ground, "0")
    (place,) = [place for place in seen.host_places if place.call]
    called = LINES["seen += num_negative(outputs)"]
    assert (place.first_line, place.last_line, place.call) == (called, called, "Tensor.item")
    assert place.calls_per_step == pytest.approx(8, rel=0.1)
    assert place.share > place.blocked_share >= 0 and seen.is_sampled
    loading, memory = seen.loading, seen.memory
    assert loading is not None and loading.num_samples == 8 * loading.num_batches
    assert (loading.num_files, loading.read_bytes) == (loading.num_samples, 48 * loading.num_samples)
    num_parameters = 12 * 16 + 16 + 16 * 3 + 3
    assert memory is not None and memory.activations_bytes
    assert (memory.parameters_bytes, memory.gradients_bytes) == (4 * num_parameters, 4 * num_parameters)
    assert memory.optimizer_state_bytes == 8 * num_parameters + 4 * 4
    assert seen.num_trainable == num_parameters and seen.parameter_dtype == "float32"
    assert seen.forward_place == f"train.py:{LINES['outputs = model(inputs)']}"
    assert seen.step_place == f"train.py:{LINES['optimizer.step()']}"
    assert seen.optimizer is not None and seen.optimizer.name == "Adam"
    assert seen.optimizer.place == f"train.py:{LINES['optimizer = torch.optim.Adam(model.parameters())']}"
    assert seen.larger_batch is not None and seen.larger_batch.factor == 8 and "SIZE 64" in run.output
    phases = [block.phase for block in run.rank.blocks]
    assert phases == sorted(phases, key=list(Phase).index) and Phase.OBSERVED in phases


@pytest.mark.slow
def test_with_workers_the_building_is_seen_in_all_of_them(ground: Ground) -> None:
    _, seen = observed(ground, "2")
    assert seen.loading is not None and seen.loading.num_files == seen.loading.num_samples > 0
    assert 0 < seen.loading.open_s < seen.loading.busy_s


@pytest.mark.slow
def test_a_script_that_takes_no_larger_batch_is_diagnosed_without_it(ground: Ground) -> None:
    _, seen = observed(ground, "0", "--fixed")
    assert seen.larger_batch is None or seen.larger_batch.factor == 8
    assert seen.memory is not None and seen.optimizer is not None


@pytest.mark.slow
def test_profiles_are_what_their_viewers_open(ground: Ground) -> None:
    _, _ = observed(ground, "0", profiles=True)
    folders = sorted(Path(ground.folder, "trials").glob("*/profiles"))
    trace, functions = (folders[-1] / name for name in PROFILE_FILES)
    events = json.loads(trace.read_text())["traceEvents"]
    assert any("aten::" in str(event.get("name")) for event in events)
    called = {name for _, _, name in pstats.Stats(str(functions)).stats}  # type: ignore[attr-defined]
    assert {"num_negative", "__getitem__"} <= called


def test_workers_that_build_a_batch_for_longer_than_a_look_takes_are_seen_all_the_same(ground: Ground) -> None:
    slow = TRAINS.replace(
        '        with open(FOLDER / f"{index}.bin", "rb") as file:',
        '        time.sleep(0.2)\n        with open(FOLDER / f"{index}.bin", "rb") as file:',
    ).replace("import sys\n", "import sys\nimport time\n", 1)
    script = ground.script(slow)
    facts = ground.probe(script, "8")
    seen = ground.trial(script, facts, "8", job={"diagnoses": True}).rank.observation  # whatever its short window says
    assert seen is not None and seen.loading is not None
    assert seen.loading.num_batches >= 4 and seen.loading.num_files == seen.loading.num_samples
