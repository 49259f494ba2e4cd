"""Loaders that are no torch DataLoader: their samples are counted, and arguments reach their settings."""

from __future__ import annotations

import pytest

from autotune.model.facts import samples_unit
from autotune.space.refusals import why_no_samples
from tests.integration.trial.ground import Ground

SPDL = """
import sys, threading, types
from queue import Queue

class PipelineIterator:
    def __init__(self, size):
        self.queue = Queue(2)
        threading.Thread(target=self.fill, args=(size,), daemon=True).start()

    def fill(self, size):
        while True:
            self.queue.put({"x": torch.randn(size, 4), "y": torch.randint(0, 3, (size,))})

    def __iter__(self):
        return self

    def __next__(self):
        return self.queue.get()

package, module = types.ModuleType("spdl"), types.ModuleType("spdl.pipeline._pipeline")
module.PipelineIterator = PipelineIterator
sys.modules.update({"spdl": package, "spdl.pipeline._pipeline": module})
"""
TRAINS = """
import torch
import sys
{library}
torch.set_num_threads(1)
size = int(sys.argv[1].partition("=")[2]) if len(sys.argv) > 1 else 8
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in PipelineIterator(size):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"]).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("size", [8, 24])
def test_samples_of_a_foreign_loader_are_counted_also_with_an_argument_of_the_script(ground: Ground, size: int) -> None:
    script = ground.script(TRAINS.format(library=SPDL))
    facts = ground.probe(script)
    assert facts.loader is None and facts.foreign_loader == "SPDL"
    assert samples_unit(facts, None) == "samples" and not why_no_samples(facts, is_declared=False)
    run = ground.trial(script, facts, f"--batch-size={size}")
    assert run.outcome == "ok", run.output
    window = [block for block in run.rank.blocks if block.phase == "window"]
    assert window and all(block.num_samples == size * block.num_steps for block in window)


def test_a_loop_without_any_loader_is_still_counted_in_steps(ground: Ground) -> None:
    own = SPDL.replace("class PipelineIterator", "class Batches").replace("module.PipelineIterator", "module.Other")
    script = ground.script(
        TRAINS.format(library=own.replace("= PipelineIterator", "= Batches")).replace(
            "in PipelineIterator", "in Batches"
        )
    )
    facts = ground.probe(script)
    assert facts.foreign_loader == "" and samples_unit(facts, None) == "steps"
