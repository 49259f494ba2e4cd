"""The product's own trials of the benchmark's script, forked and cold in turns."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.model.job import TrialJob
from autotune.model.result import TrialResult
from autotune.runner.cold import ColdRunner
from autotune.runner.forked import ForkRunner
from autotune.runner.workspace import Workspace
from autotune.space.derive import natural_settings
from autotune.spec import SearchSpec
from autotune.tuner.jobs import Jobs
from autotune.tuner.site import open_site

JOB = Path(__file__).with_name("job.py")
SAID = "first step ended at "


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Trials of the script on this machine's CPU, under its own settings."""

    cold: ColdRunner
    forked: ForkRunner
    job: TrialJob

    def run(self, kind: str, *arguments: str) -> tuple[TrialResult, float]:
        """One trial, and the moment at which it was asked for.

        Args:
            kind: forked or cold.
            *arguments: Of the script; none = it trains until it has been measured.
        """
        job = replace(self.job, command=(*self.job.command[:2], *arguments)) if arguments else self.job
        began = time.monotonic()
        handle = (self.forked if kind == "forked" else self.cold).start(job)
        handle.wait()
        result = handle.result()
        if result.start != kind:
            raise SystemExit(f"a trial had a {result.start} start: {result.start_reason}")
        return result, began

    def first_step_s(self, kind: str) -> float:
        """Seconds from asking for a trial to the end of its first step."""
        result, began = self.run(kind, "1")
        lines = [line for line in result.log_tail.splitlines() if line.startswith(SAID)]
        if not lines:
            raise SystemExit(f"a trial did no step: {result.reason}\n{result.log_tail}")
        return float(lines[0].removeprefix(SAID)) - began

    def measured(self, kind: str) -> TrialResult:
        """A trial that was measured to the end."""
        result, _ = self.run(kind)
        if result.measurement is None:
            raise SystemExit(f"a trial ended {result.outcome}: {result.reason}\n{result.log_tail}")
        return result


@contextmanager
def open_trials() -> Iterator[Trials]:
    """Trials after a probe, with a server that is up."""
    with tempfile.TemporaryDirectory() as cwd:
        command = (sys.executable, str(JOB), "forever")
        spec = SearchSpec(command=command, script=str(JOB), cwd=cwd, study="bench", device="cpu")
        site = open_site(spec)
        workspace = Workspace.open(None, cwd=Path(cwd), command=command)
        try:
            cold = ColdRunner(workspace, site.device)
            jobs = Jobs(spec=spec, site=site)
            probed = cold.start(jobs.probe()).probe_result()
            if probed.facts is None:
                raise SystemExit(f"the probe taught nothing: {probed.reason}\n{probed.log_tail}")
            workspace.probe_is_through()
            natural = natural_settings(probed.facts)
            jobs = replace(jobs, facts=probed.facts, natural=natural)
            with ForkRunner(cold, probed.facts) as forked:
                trials = Trials(cold=cold, forked=forked, job=jobs.trial(natural))
                trials.run("forked", "0")
                yield trials
        finally:
            workspace.remove()
