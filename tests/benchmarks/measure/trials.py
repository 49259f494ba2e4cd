"""The product's own trials of a script: its probe, its jobs, its runner, its judgement."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.protocol.job import TrialJob
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.runner import Runner
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.space.script_settings import script_settings_of
from autotune.spec import SearchSpec
from autotune.study.jobs import Jobs
from autotune.study.stop import StopRequest, wait_for
from autotune.study.target import open_target
from tests.jobs import changed

JOB = Path(__file__).with_name("job.py")
STEPS_JOB = Path(__file__).with_name("steps_job.py")


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Trials of one command on one device of this machine."""

    runner: Runner
    jobs: Jobs

    @property
    def script_settings(self) -> Settings:
        """What the script does by itself."""
        assert self.jobs.script_settings is not None
        return self.jobs.script_settings

    def run(self, job: TrialJob | None = None, *, seed: int, window: WindowRule | None = None) -> TrialResult:
        """One trial, by default of the script's own settings; with another window's rule where one is given."""
        job = changed(job or self.jobs.trial(self.script_settings), seed=seed)
        run = self.runner.start(job if window is None else changed(job, window=window))
        wait_for(run, StopRequest())
        result = run.result()
        if result.measurement is None:
            raise SystemExit(f"a trial ended {result.outcome}: {result.reason}\n{result.log_tail}")
        return result


@contextmanager
def trials_of(
    *arguments: str, job: Path = JOB, device: str = "cpu", is_forked: bool = False, folder: Path | None = None
) -> Iterator[Trials]:
    """Trials of a job with these arguments, after a probe of it, each a process of its own; in an empty folder unless
    one is given."""
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(str(folder)) as cwd:
        command = (sys.executable, str(job), *arguments)
        spec = SearchSpec(command=command, script=str(job), cwd=cwd, study="bench", device=device, start="fresh")
        target = open_target(spec)
        workspace = Workspace.open(None, cwd=Path(cwd), command=command)
        try:
            runner = ColdRunner(workspace, target.device)
            jobs = Jobs(spec=spec, target=target)
            facts = _probe(runner, jobs)
            workspace.probe_is_through()
            jobs = replace(jobs, facts=facts, script_settings=script_settings_of(facts), target=target.as_probed(facts))
            with ForkRunner(runner, facts) if is_forked else nullcontext(runner) as started:
                yield Trials(runner=started, jobs=jobs)
        finally:
            workspace.remove()


def _probe(runner: ColdRunner, jobs: Jobs) -> ScriptFacts:
    run = runner.start(jobs.probe())
    wait_for(run, StopRequest())
    result = run.probe_result()
    if result.facts is None:
        raise SystemExit(f"the probe taught nothing: {result.reason}\n{result.log_tail}")
    return result.facts


def said_by_job(*arguments: str, job: Path = JOB) -> dict[str, Any]:
    """What a job says of itself when it is started without autotune."""
    command = [sys.executable, str(job), *arguments]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    said: dict[str, Any] = json.loads(output.splitlines()[-1])
    return said
