"""The product's own trials of the benchmark's scripts, by any of the ways in which they can start."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.model.result import TrialResult
from autotune.protocol.job import TrialJob
from autotune.protocol.protection import ProtectionWish
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.handle import Handle
from autotune.runner.prelude_server import PreparingRun
from autotune.sandbox.workspace import Workspace
from autotune.space.derive import script_settings_of
from autotune.spec import SearchSpec
from autotune.study.jobs import Jobs
from autotune.study.target import open_target

JOB, PREPARING_JOB = Path(__file__).with_name("job.py"), Path(__file__).with_name("preparing_job.py")
CRASHING_JOB = Path(__file__).with_name("crashing_job.py")
CRASHING_RANKS = Path(__file__).with_name("crashing_ranks.py")
HF_JOB = Path(__file__).with_name("hf_job.py")
PROBE_LIMIT_S = 300.0
"""Longest start of a script here: a large model is built on a busy CPU."""
SAID = "first step ended at "


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Trials of the script on one device of this machine, under its own settings."""

    cold: ColdRunner
    forked: ForkRunner
    prepared: ForkRunner
    job: TrialJob

    def run(self, kind: str, *arguments: str) -> tuple[TrialResult, float]:
        """One trial, and the moment at which it was asked for.

        Args:
            kind: cold, forked or prepared.
            *arguments: Of the script, in the place of the first ones that it was probed with; none = it trains until
                it has been measured.
        """
        began = time.monotonic()
        handle = self.started(self.job, kind, *arguments)
        handle.wait()
        result = handle.result()
        if result.start != kind:
            raise SystemExit(f"a trial had a {result.start} start: {result.start_reason}")
        return result, began

    def started(self, job: TrialJob, kind: str, *arguments: str) -> Handle | PreparingRun:
        """A trial that has begun; arguments as in `run`."""
        if arguments:
            job = replace(job, command=(*job.command[:2], *arguments, *job.command[2 + len(arguments) :]))
        runner: ColdRunner | ForkRunner = {"cold": self.cold, "forked": self.forked, "prepared": self.prepared}[kind]
        return runner.start(job)

    def tried(self, kind: str, *arguments: str) -> TrialResult:
        """A trial that may have started in another way than was asked for; arguments as in `run`."""
        handle = self.started(self.job, kind, *arguments)
        handle.wait()
        return handle.result()

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
def open_trials(
    script: Path = JOB, *arguments: str, device: str = "cpu", wish: ProtectionWish | None = None
) -> Iterator[Trials]:
    """Trials after a probe of a script that takes its number of steps, or `forever`.

    Args:
        script: What is probed.
        *arguments: Of the script, after the number of steps.
        device: cpu or cuda.
        wish: For the protection of files; None = the best of this system.
    """
    with tempfile.TemporaryDirectory() as cwd:
        command = (sys.executable, str(script), "forever", *arguments)
        spec = SearchSpec(command=command, script=str(script), cwd=cwd, study="bench", device=device)
        target = open_target(spec)
        workspace = Workspace.open(None, cwd=Path(cwd), command=command, wish=wish)
        try:
            cold = ColdRunner(workspace, target.device)
            jobs = Jobs(spec=spec, target=target)
            probe = replace(jobs.probe(), start_limit_s=PROBE_LIMIT_S, total_limit_s=2 * PROBE_LIMIT_S)
            probed = cold.start(probe).probe_result()
            if probed.facts is None:
                raise SystemExit(f"the probe taught nothing: {probed.reason}\n{probed.log_tail}")
            workspace.probe_is_through()
            script_settings = script_settings_of(probed.facts)
            jobs = replace(jobs, facts=probed.facts, script_settings=script_settings)
            with (
                ForkRunner(cold, probed.facts, least_preparation_s=math.inf) as forked,
                ForkRunner(cold, probed.facts) as prepared,
            ):
                yield Trials(cold=cold, forked=forked, prepared=prepared, job=jobs.trial(script_settings))
        finally:
            workspace.remove()
