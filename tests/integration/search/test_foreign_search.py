"""Whole searches of scripts whose batches come from another library's loader, with its threads as a knob.

FFCV cannot be installed beside a current torch: a package of the same shape stands in for it. All other libraries are
real, and missing ones are skipped.
"""

from __future__ import annotations

import json

import pytest

from tests.integration.search.test_search_command import autotune, files_of, finished, strays

pytestmark = pytest.mark.slow
THREADS = ("1", "3")
FIXED = (
    "omp_wait_policy=default",
    "precision=fp32",
    "matmul_precision=highest",
    "optimizer_form=default",
    "compile=false",
)

DALI = """
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

def batches(threads):
    @pipeline_def(batch_size=8, num_threads=threads, device_id=None)
    def made():
        targets = fn.random.uniform(range=[0.0, 2.0])
        return fn.random.uniform(range=[0.0, 1.0], shape=[4]), fn.cast(targets, dtype=types.INT64)

    for [batch] in DALIGenericIterator(made(), ["x", "y"]):
        yield batch["x"], batch["y"].flatten()
"""
NODES = """
import torchdata.nodes as nodes

def make(number):
    return torch.randn(8, 4), torch.randint(0, 3, (8,))

def batches(threads):
    items = nodes.IterableWrapper(range(10**9))
    mapper = nodes.ParallelMapper(items, make, num_workers=threads, method="thread")
    return nodes.Loader(nodes.Prefetcher(mapper, 2))
"""
SPDL = """
from spdl.pipeline import PipelineBuilder

def make(number):
    return torch.randn(8, 4), torch.randint(0, 3, (8,))

def batches(threads):
    builder = PipelineBuilder().add_source(range(10**9)).pipe(make, concurrency=threads).add_sink(4)
    pipeline = builder.build(num_threads=threads)
    with pipeline.auto_stop():
        yield from pipeline
"""
FFCV = """
from ffcv.loader import Loader

def batches(threads):
    return Loader(batch_size=8, num_workers=threads)
"""
LIKE_FFCV = """
import threading
from queue import Queue
import torch

class EpochIterator(threading.Thread):
    def __init__(self, loader):
        super().__init__(daemon=True)
        self.loader, self.output_queue = loader, Queue(2)
        self.start()

    def run(self):
        while True:
            size = self.loader.batch_size
            self.output_queue.put((torch.randn(size, 4), torch.randint(0, 3, (size,))))

    def __iter__(self):
        return self

    def __next__(self):
        return self.output_queue.get()
"""
TRAINS = """
import argparse
import torch
{library}
parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
threads = parser.parse_args().threads
torch.set_num_threads(1)
print("threads", threads, flush=True)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches(threads):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("package", "library"), [("nvidia.dali", DALI), ("torchdata", NODES), ("spdl", SPDL), ("", FFCV)]
)
def test_a_search_reaches_the_threads_of_a_foreign_loader_and_counts_its_samples(tmp_path, package, library):
    if package:
        pytest.importorskip(package)
    else:
        folder = tmp_path / "ffcv" / "loader"
        folder.mkdir(parents=True)
        (folder.parent / "__init__.py").touch()
        (folder / "epoch_iterator.py").write_text(LIKE_FFCV)
        (folder / "__init__.py").write_text(
            "from ffcv.loader.epoch_iterator import EpochIterator\n\n"
            "class Loader:\n"
            "    def __init__(self, batch_size, num_workers):\n"
            "        self.batch_size, self.num_workers = batch_size, num_workers\n\n"
            "    def __iter__(self):\n"
            "        return EpochIterator(self)\n"
        )
    (tmp_path / "home").mkdir()
    (tmp_path / "train.py").write_text(TRAINS.format(library=library))
    before = files_of(tmp_path)
    search = autotune(
        *(tmp_path, "search", "train.py", "--trials", "3", "--time", "150s", "--json", "--study", "foreign"),
        *("--set", f"threads={','.join(THREADS)}", "--map", "threads=--threads={}"),
        *(word for fixed in FIXED for word in ("--fix", fixed)),
    )
    code, output, talk = finished(search)
    assert code == 0, talk
    result = json.loads(output)
    assert result["samples_unit"] == "samples", talk
    code, shown, talk = finished(autotune(tmp_path, "studies", "show", "foreign", "--json"))
    assert code == 0, talk
    tried = [trial["settings"].get("knobs") for trial in json.loads(shown)["trials"]]
    assert {"threads": THREADS[0]} in tried and {"threads": THREADS[1]} in tried, tried
    after = files_of(tmp_path)
    assert {path: after[path] for path in before} == before and not strays(tmp_path)
