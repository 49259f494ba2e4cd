"""Every shape of a script from its probe to a trial under other settings, by the product's own runners."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.host import available_memory_bytes, cpu_device, fingerprint
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.protocol.job import TrialJob
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.handle import Handle
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.space.derive import Machine, derive_space
from autotune.space.search_space import SPLIT, SearchSpace
from autotune.spec import SearchSpec
from autotune.study.jobs import Jobs
from autotune.study.probing import probe_script
from autotune.study.stop import StopRequest
from autotune.study.target import Target
from tests.integration.runner.ground import digest, processes_of
from tests.integration.shapes.shape import Shape
from tests.jobs import changed
from tests.unit.facts import script_facts

SCRIPTS = Path(__file__).parent / "scripts"
QUICK = WindowRule(half_width_ratio=0.9, min_blocks=4, min_window_s=0.1, max_window_s=8.0, min_block_s=0.02)
"""Enough to be judged; the figures of such a window are not looked at."""
WINDOW_S, LIMIT_S = QUICK.max_window_s, 90.0
IMPORTED = script_facts(imports=("torch._dynamo", "torch.utils.data", "hasty"))
NUM_CPUS = 8
"""Of the machine that the spaces are derived for; the trials use few."""
CAP_SHARE = 0.5
"""Of a trial's own peak: under such a cap the same trial must be ended."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All that came of one shape."""

    refusal: str = ""
    """Why the probe refuses the script as a whole; nothing else is known then."""
    facts: ScriptFacts | None = None
    space: SearchSpace | None = None
    asked: Settings | None = None
    """Settings of the trial: other than the script's own in all that may be changed."""
    trial: TrialResult | None = None
    capped: TrialResult | None = None
    """The same trial under a cap of half its peak."""
    changed_files: tuple[str, ...] = ()
    num_left: int = 0
    """Processes that the trials left."""


class _Forks(ForkRunner):
    """Forks probes too: a second each, where the script is one process that needs no interpreter of its own."""

    def start(self, job: TrialJob) -> Handle:
        """Starts one run; of several processes together, or of a module, from a cold start."""
        if job.world_size > 1:
            return self._cold.start(job)
        key, _ = self._serve(job)
        return self._fork(key, job, 0.0, "")


class Ground:
    """One user's folder with a folder for each shape, and one server that forks their trials.

    Args:
        root: Empty.
        user: A folder that is there already, with scripts of its own; None = a new one.
        window_s: Longest window of a trial: more for a script whose steps take seconds.
        limit_s: Longest trial.
    """

    def __init__(
        self, root: Path, user: Path | None = None, *, window_s: float = WINDOW_S, limit_s: float = LIMIT_S
    ) -> None:
        self._window_s, self._limit_s = window_s, limit_s
        self.user, self.home = user or root / "project", root / "home"
        self.user.mkdir(exist_ok=True)
        self.home.mkdir()
        self._environment = dict(os.environ)
        path = os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH", "")]))
        os.environ.update(HOME=str(self.home), OMP_NUM_THREADS="1", PYTHONPATH=path)
        self.workspace = Workspace.open(None, cwd=self.user, command=(sys.executable, "train.py"))
        self.cold = ColdRunner(self.workspace, cpu_device())
        self._forks = _Forks(self.cold, IMPORTED)

    def close(self) -> None:
        """Ends the server, removes the workspace, and gives back the environment."""
        self._forks.close()
        self.workspace.remove()
        os.environ.clear()
        os.environ.update(self._environment)

    def put(self, shape: Shape) -> Path:
        """The shape's files, in a folder of its own."""
        folder = self.user / shape.folder
        for name, text in shape.texts().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    def jobs(self, shape: Shape, folder: Path, facts: ScriptFacts | None = None, **wishes: Any) -> Jobs:
        """What makes the jobs of a shape's study."""
        spec = SearchSpec(
            command=(sys.executable, *shape.command()),
            script=str(folder / shape.script),
            cwd=str(folder),
            study=shape.folder,
            num_processes_per_node=shape.num_processes,
            **{**shape.wishes, **wishes},
        )
        device = cpu_device()
        host = fingerprint(device, num_devices=shape.num_processes, torch_version="")
        target = Target(device=device, cap_bytes=available_memory_bytes(), usable_cpus=NUM_CPUS, host=host)
        return Jobs(spec=spec, target=target, facts=facts)

    def see(self, shape: Shape) -> Seen:
        """Probes, derives the space, and runs a trial under settings that change all that may be changed."""
        return self.see_in(self.put(shape), shape)

    def see_in(self, folder: Path, shape: Shape) -> Seen:
        """The same for a shape whose files are in that folder."""
        before = digest(self.user, self.home)
        seen = self._see(shape, folder)
        after = digest(self.user, self.home)
        changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        return replace(seen, changed_files=tuple(changed), num_left=len(processes_of(self.workspace.folder)))

    def _see(self, shape: Shape, folder: Path) -> Seen:
        runner = self.cold if shape.needs_a_cold_start or not self.workspace.has_layers else self._forks
        jobs = self.jobs(shape, folder)
        try:
            facts = probe_script(jobs, runner, lambda: None, StopRequest())
        except AutotuneError as error:
            return Seen(refusal=str(error))
        machine = Machine(usable_cpus=NUM_CPUS, device=jobs.target.device, shm_free_bytes=None)
        space = derive_space(facts, machine, jobs.spec)
        asked = other_settings(space, shape)
        jobs = replace(jobs, facts=facts, script_settings=space.script_settings)
        job = quick(jobs.trial(asked), window_s=self._window_s, limit_s=self._limit_s)
        trial = runner.start(job).result()
        capped = None
        if trial.peak_memory_bytes is not None:
            capped = runner.start(replace(job, cap_bytes=int(CAP_SHARE * trial.peak_memory_bytes))).result()
        return Seen(facts=facts, space=space, asked=asked, trial=trial, capped=capped)


def quick(job: TrialJob, *, window_s: float = WINDOW_S, limit_s: float = LIMIT_S) -> TrialJob:
    """The same trial, with a window that is just enough to be judged; two thirds of its limit are for its start."""
    window = replace(QUICK, max_window_s=window_s)
    return changed(job, window=window, start_limit_s=limit_s * 2 / 3, total_limit_s=limit_s)


def other_settings(space: SearchSpace, shape: Shape) -> Settings:
    """The script's own settings, with another value wherever the space has one that is quick on a CPU."""
    wishes = {
        "num_workers": 1,
        "prefetch_factor": 4,
        "precision": "bf16",
        "channels_last": True,
        "intra_op_threads": 2,
        **shape.changes,
    }
    params = dict(space.params(space.script_settings))
    params.update({name: value for name, value in wishes.items() if value in space.allowed.get(name, ())})
    if SPLIT in space.allowed and params[SPLIT] > min(space.allowed[SPLIT]):
        params[SPLIT] = max(index for index in space.allowed[SPLIT] if index < params[SPLIT])
    return space.settings(params)
