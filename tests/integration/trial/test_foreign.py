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


def phases_of(run) -> list[str]:
    return list(dict.fromkeys(str(block.phase) for block in run.rank.blocks))


def test_the_compute_only_rate_is_measured_on_a_cached_batch_of_a_foreign_loader(ground: Ground) -> None:
    script = ground.script(TRAINS.format(library=SPDL))
    run = ground.trial(script, ground.probe(script))
    assert run.outcome == "ok", run.output
    assert phases_of(run) == ["warmup", "compute", "ramp", "window"]
    assert run.rank.compute_samples_per_second is not None
    compute = [block for block in run.rank.blocks if block.phase == "compute"]
    assert all(block.num_samples == 8 * block.num_steps for block in compute)


VALIDATES = """
import itertools
class Few(PipelineIterator):
    def __init__(self):
        super().__init__(4)
        self.left = 5
    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return super().__next__()
"""


def test_a_loop_that_only_reads_a_foreign_loader_still_ends(ground: Ground) -> None:
    library = SPDL + VALIDATES.replace("import itertools\n", "")
    reads = "    optimizer.step()\n    for other in Few():\n        model(other['x'])\n"
    script = ground.script(TRAINS.format(library=library).replace("    optimizer.step()\n", reads))
    run = ground.trial(script, ground.probe(script))
    assert run.outcome == "ok", run.output


def test_batches_of_several_sizes_have_no_compute_only_rate(ground: Ground) -> None:
    uneven = SPDL.replace("torch.randn(size, 4)", "torch.randn(size, 4).repeat(1, 1 + next(self.turns) % 3)").replace(
        "        self.queue = Queue(2)", "        self.queue, self.turns = Queue(2), itertools.count()"
    )
    script = ground.script(
        TRAINS.format(library="import itertools" + uneven).replace('model(batch["x"])', 'model(batch["x"][:, :4])')
    )
    facts = ground.probe(script)
    assert facts.foreign_batches_vary
    run = ground.trial(script, facts)
    assert run.outcome == "ok" and run.rank.compute_samples_per_second is None, run.output


def test_a_diagnosis_charges_the_threads_of_a_foreign_loader(ground: Ground) -> None:
    works = SPDL.replace("        while True:\n", "        while True:\n            sum(range(20000))\n")
    script = ground.script(TRAINS.format(library=works))
    run = ground.trial(script, ground.probe(script), job={"diagnoses": True})
    assert run.outcome == "ok" and run.rank.observation is not None, run.output
    loading, steps = run.rank.observation.loading, run.rank.observation.steps
    assert loading is not None and loading.num_building == 1 and loading.cpu_s > 0
    assert loading.num_samples == 8 * loading.num_batches and steps.data_wait_s > 0


NODES = """
import torchdata.nodes as nodes
def make(number):
    return {"x": torch.randn(8, 4), "y": torch.randint(0, 3, (8,))}
def PipelineIterator(size):
    items = nodes.IterableWrapper(range(10**9))
    return nodes.Loader(nodes.Prefetcher(nodes.ParallelMapper(items, make, num_workers=2, method="thread"), 2))
"""
PIPELINE = """
from spdl.pipeline import PipelineBuilder
def make(number):
    return {"x": torch.randn(8, 4), "y": torch.randint(0, 3, (8,))}
def PipelineIterator(size):
    pipeline = PipelineBuilder().add_source(range(10**9)).pipe(make, concurrency=2).add_sink(4).build(num_threads=2)
    with pipeline.auto_stop():
        yield from pipeline
"""

DALI = """
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator
def PipelineIterator(size):
    @pipeline_def(batch_size=size, num_threads=2, device_id=None)
    def made():
        targets = fn.random.uniform(range=[0.0, 2.0])
        return fn.random.uniform(range=[0.0, 1.0], shape=[4]), fn.cast(targets, dtype=types.INT64)
    for [batch] in DALIGenericIterator(made(), ["x", "y"]):
        yield {"x": batch["x"], "y": batch["y"].flatten()}
"""


@pytest.mark.parametrize(
    ("package", "library", "name"),
    [("torchdata", NODES, "torchdata.nodes"), ("spdl", PIPELINE, "SPDL"), ("nvidia.dali", DALI, "DALI")],
)
def test_the_real_libraries_are_counted_charged_and_have_a_ceiling(
    ground: Ground, package: str, library: str, name: str
) -> None:
    pytest.importorskip(package)
    script = ground.script(TRAINS.format(library=library))
    facts = ground.probe(script)
    assert facts.foreign_loader == name
    run = ground.trial(script, facts, job={"diagnoses": True})
    assert run.outcome == "ok" and run.rank.compute_samples_per_second is not None, run.output
    assert run.rank.observation is not None and run.rank.observation.loading is not None
    assert run.rank.observation.loading.num_building >= 1
