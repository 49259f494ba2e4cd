"""The tuner's own time per trial late in a study on SQLite: ask and tell."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from optuna.storages import RDBStorage

from autotune.search.search import Proposal, Search
from autotune.search.stopping import SAMPLED_STAGE
from autotune.search.walk import PlanLimits
from tests.benchmarks.search.family import random_workload
from tests.benchmarks.search.workload import Workload

NUM_SEARCHED = 25
"""Trials of the search itself, enough for the plan; the rest, drawn at random, is taken over from elsewhere."""
NUM_BEFORE = 198
NUM_TIMED = 4
SEED = 1001


def tuner_time_table() -> str:
    """CPU seconds of one ask and tell around trial 200, for a workload on each device."""
    lines = ["| device | CPU time of ask and tell at trial 200, mean |", "|---|---|"]
    return "\n".join([*lines, *(f"| {device} | {1000 * _cpu_s(device):.0f} ms |" for device in ("cpu", "cuda"))])


def _cpu_s(device: str) -> float:
    workload, rng = random_workload(SEED, device), random.Random(SEED)
    space = workload.space
    limits = PlanLimits(usable_cpus=workload.usable_cpus, cap_bytes=workload.cap_bytes)
    with tempfile.TemporaryDirectory() as folder:
        storage = RDBStorage(f"sqlite:///{Path(folder) / 'study.db'}")
        search = Search(storage, "study", space, limits, seed=1, max_trials=1000, spend_all=True)
        for _ in range(NUM_SEARCHED):
            _trial(search, workload)
        while search.num_finished < NUM_BEFORE:
            settings = space.settings({name: rng.choice(space.allowed[name]) for name in space.searched})
            source = str(search.num_finished)
            search.take_over(settings, SAMPLED_STAGE, workload.run(settings, 1), source=source)
        _trial(search, workload)  # The first after so many taken over brings the sampler's study up to date at once.
        spent_s = sum(_trial(search, workload) for _ in range(NUM_TIMED))
        storage.engine.dispose()
    return spent_s / NUM_TIMED


def _trial(search: Search, workload: Workload) -> float:
    """CPU seconds of the tuner for one trial."""
    began_s = time.process_time()
    proposal = search.ask({"owner": "benchmark"})
    asked_s = time.process_time() - began_s
    if not isinstance(proposal, Proposal):
        raise RuntimeError(f"the search ended: {proposal.reason}")
    result = workload.run(proposal.settings, 1)
    began_s = time.process_time()
    search.tell(proposal.number, result)
    return asked_s + time.process_time() - began_s
