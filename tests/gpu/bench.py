"""Real trials of small scripts on the CUDA device of this machine, as a search would run them."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.host import DeviceInfo
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.model.result import RankResult, TrialResult
from autotune.protocol.job import TrialJob
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import used_bytes
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.space.script_settings import script_settings_of
from autotune.study.jobs import Jobs
from autotune.study.target import Target, make_target
from tests.jobs import changed
from tests.unit.facts import search_spec

SCRIPTS = Path(__file__).parent / "scripts"
REPOSITORY = Path(__file__).parents[2]
QUICK = WindowRule(half_width_ratio=0.05, min_window_s=1.0, max_window_s=2.0)
THREE_SECONDS = WindowRule(half_width_ratio=0.001, min_window_s=3.0, max_window_s=3.0)
FIGURES: list[tuple[str, str]] = []
"""(what, figure) of this machine, printed at the end of the session and never asserted."""


@dataclass
class Bench:
    """One user's folder with the scripts, and a site on the device."""

    root: Path
    device: DeviceInfo
    user: Path = field(init=False)
    target: Target = field(init=False)
    workspace: Workspace = field(init=False)
    runner: ColdRunner = field(init=False)
    known: dict[str, ScriptFacts] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.user = self.root / "project"
        shutil.copytree(SCRIPTS, self.user, ignore=shutil.ignore_patterns("__pycache__"))
        self.target = make_target(search_spec(cwd=str(self.user), device="cuda"), self.device)
        self.workspace = Workspace.open(None, cwd=self.user, command=(sys.executable, "trains.py"))
        self.runner = ColdRunner(self.workspace, self.device)

    def jobs(self, script: str, *arguments: str, cap: str | None = None, share_gpu: bool = False) -> Jobs:
        """Makes jobs of a script; its facts are not known yet."""
        command = (sys.executable, script, *arguments)
        # A process that serves several trials says nothing at its end.
        spec = search_spec(
            command=command, cwd=str(self.user), memory_cap=cap, device="cuda", share_gpu=share_gpu, start="fresh"
        )
        return Jobs(spec=spec, target=make_target(spec, self.device))

    def probed(self, script: str, *arguments: str, cap: str | None = None) -> Jobs:
        """The same with what a probe learned, which is run once per script."""
        jobs = self.jobs(script, *arguments, cap=cap)
        key = " ".join((script, *arguments))
        if key not in self.known:
            handle = self.runner.start(self.jobs(script, *arguments).probe())
            handle.wait()
            result = handle.probe_result()
            assert result.facts is not None, result.reason + result.log_tail
            self.known[key] = replace(result.facts, outside_allocator_bytes=result.outside_allocator_bytes)
        facts = self.known[key]
        return replace(
            jobs, facts=facts, script_settings=script_settings_of(facts), target=jobs.target.as_probed(facts)
        )

    def trial(self, jobs: Jobs, *, window: WindowRule = QUICK, **settings: Any) -> TrialJob:
        """A job of the script under its own settings, but for these."""
        assert jobs.script_settings is not None
        asked = Settings.from_dict({**jobs.script_settings.to_dict(), **settings})
        return changed(jobs.trial(asked), window=window)

    def run(self, job: TrialJob) -> TrialResult:
        """Runs a job to its end."""
        handle = self.runner.start(job)
        handle.wait()
        return handle.result()

    def train(self, **settings: Any) -> TrialResult:
        """A trial of the script that trains."""
        return self.run(self.trial(self.probed("trains.py"), **settings))


def variables_of_a_child() -> dict[str, str]:
    """Variables for a process in another folder, which finds this repository and the packages of this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])}


def said(result: TrialResult) -> dict[str, Any]:
    """What the script that trains saw of its settings."""
    lines = [line for line in result.log_tail.splitlines() if line.startswith("SAID ")]
    assert lines, result.reason + result.log_tail
    return dict(json.loads(lines[-1].removeprefix("SAID ")))


def rank_of(result: TrialResult) -> RankResult:
    """The report of the only rank."""
    assert len(result.ranks) == 1, result.reason + result.log_tail
    return result.ranks[0]


def note(what: str, figure: str) -> None:
    """Keeps a figure of this machine for the end of the session."""
    FIGURES.append((what, figure))


def used_when_settled(bench: Bench) -> int:
    """Memory in use on the device once the last trial's has been given back."""
    readings = [used_bytes(bench.device) or 0]
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        time.sleep(0.2)
        readings.append(used_bytes(bench.device) or 0)
        if len(readings) > 3 and len(set(readings[-3:])) == 1:
            break
    return readings[-1]
