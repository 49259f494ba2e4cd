"""The tuner's own time per trial late in a study on SQLite: ask, tell, record, and all else that it does for one."""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from autotune.lab.function_runner import FunctionRunner
from autotune.measure.block import Block, Phase
from autotune.model.events import Event, TrialFinished
from autotune.model.result import RankResult, RankStatus, TrialResult
from autotune.model.trial_records import TrialRecord
from autotune.search.plan_state import PlanLimits
from autotune.search.search_stopping import SAMPLED_STAGE
from autotune.search.study_search import Search
from autotune.settings import Settings
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.study.budget import Budget
from autotune.study.jobs import Jobs
from autotune.study.stop import StopRequest
from autotune.study.target import make_target
from autotune.study.trial_loop import TrialLoop
from tests.benchmarks.search.family import random_workload
from tests.benchmarks.search.workload import Workload
from tests.unit.facts import cpu_machine, gpu_machine, script_facts, search_spec

NUM_SEARCHED = 25
"""Trials of the search itself, enough for the plan; the rest, drawn at random, is taken over from elsewhere."""
NUM_BEFORE = 196
NUM_TIMED = 8
NUM_BLOCKS = 60
"""Of a trial's window, all of which are recorded; a usual trial has no more."""
SEED = 1001
STUDY = "benchmark"


def tuner_time_table() -> str:
    """CPU seconds of the tuner for one trial around trial 200, for a workload on each device."""
    lines = ["| device | CPU time of the tuner for trial 200: ask, tell, record and the rest, mean |", "|---|---|"]
    return "\n".join([*lines, *(f"| {device} | {1000 * _cpu_s(device):.0f} ms |" for device in ("cpu", "cuda"))])


def _cpu_s(device: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        study = _Study(random_workload(SEED, device), folder)
        study.run(NUM_SEARCHED)
        study.take_over(NUM_BEFORE)
        try:
            # The first after so many taken over brings the sampler's study up to date at once.
            return fmean(study.run(NUM_BEFORE + 1 + NUM_TIMED)[1:])
        finally:
            study.repository.close()


class _Study:
    """An imagined script with all that the tuner has in a real search but the processes."""

    def __init__(self, workload: Workload, folder: str) -> None:
        self._workload = workload
        machine = cpu_machine() if workload.is_cpu else gpu_machine()
        spec = search_spec(cwd=folder, study=STUDY)
        target = replace(make_target(spec, machine.device), cap_bytes=workload.cap_bytes)
        facts, script_settings = script_facts(device=machine.device.kind), workload.space.script_settings
        self._jobs = Jobs(spec=spec, target=target, facts=facts, script_settings=script_settings)
        self._runner = FunctionRunner(self._measure, facts)
        self._not_ours_s = 0.0
        self.repository = Repository.open(f"sqlite:///{Path(folder) / 'study.db'}")
        created = StudyRecord(
            name=STUDY,
            spec=spec,
            fingerprint={},
            created_at=datetime.now(UTC),
            facts=facts,
            script_settings=script_settings,
        )
        self.repository.create_study(created)

    def run(self, max_trials: int) -> list[float]:
        """Goes on with the search to that many trials; CPU seconds of the tuner for each but the first."""
        finished_s: list[float] = []

        def note(event: Event) -> None:
            if isinstance(event, TrialFinished):
                finished_s.append(time.process_time() - self._not_ours_s)

        loop = TrialLoop(
            study=STUDY,
            search=self._search(max_trials),
            jobs=self._jobs,
            runner=self._runner,
            repository=self.repository,
            budget=Budget(1e9, 0.0),
            stop=StopRequest(),
            on_event=note,
        )
        loop.run()
        return [after - before for before, after in pairwise(finished_s)]

    def take_over(self, num_trials: int) -> None:
        """Adds settings drawn at random until there are so many trials."""
        search, rng, space = self._search(num_trials), random.Random(SEED), self._workload.space
        while search.num_finished < num_trials:
            settings = space.settings({name: rng.choice(space.allowed[name]) for name in space.searched})
            result, now = self._measure(settings), datetime.now(UTC)
            number = search.take_over(settings, SAMPLED_STAGE, result, source=str(search.num_finished))
            if number is not None:
                record = TrialRecord(
                    number=number,
                    settings=settings,
                    stage=SAMPLED_STAGE,
                    result=result,
                    started_at=now,
                    finished_at=now,
                    optuna_told=True,
                )
                self.repository.record_trial(STUDY, record)

    def _search(self, max_trials: int) -> Search:
        workload = self._workload
        limits = PlanLimits(usable_cpus=workload.usable_cpus, cap_bytes=workload.cap_bytes)
        storage = self.repository.optuna_storage
        return Search(storage, STUDY, workload.space, limits, seed=1, max_trials=max_trials, spend_all=True)

    def _measure(self, settings: Settings) -> TrialResult:
        """What the imagined script reports, with as many blocks as a real one."""
        began_s = time.process_time()
        result = self._workload.run(settings, 1)
        rate = result.rate_or_bound
        if rate:
            result = replace(result, ranks=(_rank(rate),))
        self._not_ours_s += time.process_time() - began_s
        return result


def _rank(rate: float) -> RankResult:
    block = Block(
        phase=Phase.WINDOW,
        num_steps=4,
        num_micro_batches=4,
        num_samples=256.0,
        duration_s=256.0 / rate,
        data_wait_s=0.01 / rate,
    )
    return RankResult(rank=0, world_size=1, status=RankStatus.MEASURED, blocks=(block,) * NUM_BLOCKS)
