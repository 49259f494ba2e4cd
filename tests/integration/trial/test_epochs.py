"""The end of an epoch: never in a window by accident, its cost seen once, and what it makes of the rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.measure.block import Phase
from autotune.measure.window_stopping import WindowRule
from autotune.model.result import Measurement
from tests.integration.trial import loops
from tests.integration.trial.ground import Ground, Run

SLOW_START = """
import time

def init(worker):
    time.sleep(0.2)

loader = DataLoader(Data(NUM_SAMPLES), batch_size=8, worker_init_fn=init)
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
        time.sleep(0.005)
"""
NEW_LOADER = """
import time

def init(worker):
    time.sleep(0.2)

for epoch in range(1000):
    loader = DataLoader(Data(800), batch_size=8, worker_init_fn=init)
    for x, y in loader:
        train_on(x, y)
        time.sleep(0.005)
"""
LEAVES_BY_COUNTING = """
import time
data = Data()
loader = DataLoader(data, batch_size=8, shuffle=True)
for epoch in range(1000):
    for number, (x, y) in enumerate(loader):
        train_on(x, y)
        time.sleep(0.002)
        if number + 1 == len(data) // 8:
            break
"""
ENDLESS = """
import itertools, time
from torch.utils.data import BatchSampler, Sampler

class Endless(Sampler):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        while True:
            yield from torch.randperm(self.size).tolist()

    def __len__(self):
        return self.size

class DataLoader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__initialized = False
        self.batch_sampler = kwargs["batch_sampler"]
        self.__initialized = True

class Prefetcher:
    def __init__(self, loader):
        self.batches = iter(loader)
        self.preload()

    def preload(self):
        try:
            self.x, self.y = next(self.batches)
        except StopIteration:
            self.x = self.y = None

    def next(self):
        x, y = self.x, self.y
        self.preload()
        return x, y

loader = DataLoader(Data(320), batch_sampler=BatchSampler(Endless(320), 8, False))
prefetcher = Prefetcher(loader)
for epoch in range(1000):
    for iteration in range(len(loader)):
        x, y = prefetcher.next()
        train_on(x.to(torch.float32), y)
        time.sleep(0.005)
"""
"""As YOLOX: a loader that sets its batch sampler again, and epochs that take their batches from a single iteration."""
SHORT_STREAM = loops.ITERABLE.replace("WORKERS", "1").replace("LENGTH", "30")


@pytest.fixture(autouse=True)
def unhurried(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "is_hasty", False)


def measured(run: Run) -> Measurement:
    assert run.outcome == "ok", f"{run.verdict} {run.output}"
    assert run.verdict is not None and run.verdict.measurement is not None
    return run.verdict.measurement


def restart_blocks(run: Run) -> int:
    return sum(block.phase is Phase.RESTART for block in run.rank.blocks)


def script(ground: Ground, loop: str, **values: object) -> Path:
    for name, value in values.items():
        loop = loop.replace(name, repr(value))
    return ground.script(loops.PRELUDE + loop)


def test_workers_that_are_started_anew_cost_what_they_take_and_persistent_ones_nothing(ground: Ground) -> None:
    path = script(ground, SLOW_START, NUM_SAMPLES=800)  # 100 batches of 5 ms
    facts = ground.probe(path)
    anew = measured(ground.trial(path, facts, num_workers=2))
    kept = measured(ground.trial(path, facts, num_workers=2, persistent_workers=True))
    assert anew.restart_s is not None and kept.restart_s is not None
    assert anew.restart_s > 0.2 > 2 * kept.restart_s
    assert anew.samples_per_second < 0.95 * anew.steady_samples_per_second


@pytest.mark.parametrize("is_persistent", [False, True])
def test_workers_of_a_loader_that_is_built_for_each_epoch_are_started_in_each(
    ground: Ground, is_persistent: bool
) -> None:
    """Persistent workers seemed to live on, and 1.8x was claimed for what trains at 0.7x."""
    path = script(ground, NEW_LOADER)
    facts = ground.probe(path)
    assert facts.loader is not None and facts.loader.is_rebuilt
    anew = measured(ground.trial(path, facts, num_workers=2, persistent_workers=is_persistent))
    assert anew.restart_s is not None and anew.restart_s > 0.2
    assert anew.samples_per_second < 0.95 * anew.steady_samples_per_second


def test_a_restart_that_is_nothing_beside_a_long_epoch_is_not_made(ground: Ground) -> None:
    path = script(ground, SLOW_START, NUM_SAMPLES=800_000)
    run = ground.trial(path, ground.probe(path), num_workers=2)
    assert measured(run).restart_s is None
    assert restart_blocks(run) == 0
    assert measured(run).samples_per_second == measured(run).steady_samples_per_second


def test_without_workers_there_is_nothing_to_start(ground: Ground) -> None:
    path = script(ground, SLOW_START, NUM_SAMPLES=800)
    run = ground.trial(path, ground.probe(path), num_workers=0)
    assert measured(run).restart_s is None
    assert restart_blocks(run) == 0


def test_a_race_that_is_lost_is_not_prolonged_by_a_restart(ground: Ground) -> None:
    path = script(ground, SLOW_START, NUM_SAMPLES=800)
    incumbent = {"incumbent_samples_per_second": 1e4}
    run = ground.trial(path, ground.probe(path), num_workers=2, job=incumbent)
    assert run.outcome == "raced_out"
    assert restart_blocks(run) == 0


@pytest.mark.parametrize("loop", [LEAVES_BY_COUNTING, SHORT_STREAM], ids=["by counting", "stream"])
def test_epochs_too_short_for_a_window_are_counted_and_stay_in_it(ground: Ground, loop: str) -> None:
    path = script(ground, loop)
    window = WindowRule(half_width_ratio=0.05, max_window_s=2.0)
    run = ground.trial(path, ground.probe(path), num_workers=1, job={"window": window})
    assert measured(run).restart_s is None
    assert measured(run).epoch_s is None
    assert run.rank.num_epoch_ends > 1
    assert restart_blocks(run) == 0


def test_epochs_that_take_their_batches_from_an_endless_iteration_go_on(ground: Ground) -> None:
    path = script(ground, ENDLESS)
    window = WindowRule(half_width_ratio=0.001, max_window_s=2.0)
    run = ground.trial(path, ground.probe(path), num_workers=1, job={"window": window})
    assert measured(run).epoch_s is None
    assert run.rank.num_steps > 2 * 40 and run.rank.num_epoch_ends == 0
    assert restart_blocks(run) == 0


def test_a_window_between_two_ends_has_none(ground: Ground) -> None:
    """The epoch that ends in the first window is left, and the next one is long enough."""
    path = script(ground, LEAVES_BY_COUNTING.replace("Data()", "Data(8000)"))
    run = ground.trial(path, ground.probe(path), num_workers=1)
    assert measured(run).epoch_s is not None
    assert run.rank.num_epoch_ends <= 1


@pytest.mark.parametrize("loop", [loops.SUBCLASS, loops.LIBRARY, loops.BATCH_SAMPLER, loops.PER_EPOCH])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_restart_leaves_every_kind_of_script_measured(ground: Ground, loop: str, is_persistent: bool) -> None:
    path = ground.script(loops.PRELUDE + loop)
    run = ground.trial(path, ground.probe(path), num_workers=2, persistent_workers=is_persistent)
    assert (measured(run).restart_s is None) is (loop == loops.SUBCLASS)  # which has no length, and no end
    assert measured(run).samples_per_second <= measured(run).steady_samples_per_second
    assert not run.is_timed_out
