"""A user's script after its probe: what its trials need, however they are started."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.protocol.job import Mode, TrialJob
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.settings import Settings
from autotune.space.script_settings import script_settings_of
from tests.integration.runner.ground import Ground

BRIEF = WindowRule(half_width_ratio=0.9, min_window_s=0.1)


@dataclass
class Study:
    """One user's script after its probe, and the ways to start it."""

    ground: Ground
    cold: ColdRunner
    facts: ScriptFacts
    script_settings: Settings
    script: str

    def job(self, *arguments: str, settings: Settings | None = None) -> TrialJob:
        """A trial of the script, under its own settings unless others are given."""
        settings = settings or self.script_settings
        threads = str(settings.intra_op_threads)
        is_other = settings.intra_op_threads != self.script_settings.intra_op_threads
        return self.ground.job(
            self.script,
            *arguments,
            settings=settings,
            script_settings=self.script_settings,
            facts=self.facts,
            window=BRIEF,
            environment=(("OMP_NUM_THREADS", threads), ("MKL_NUM_THREADS", threads)) if is_other else (),
            start_limit_s=120.0,
            total_limit_s=120.0,
        )

    def runner(self, *, least_preparation_s: float = 0.0) -> ForkRunner:
        """One whose trials go on from the script's beginning, however short that is."""
        return ForkRunner(self.cold, self.facts, least_preparation_s=least_preparation_s)


def opened(ground: Ground, script: str) -> Study:
    """The study of a script of the ground, which is probed."""
    assert isinstance(ground.runner, ColdRunner)
    job = ground.job(script, mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    probed = ground.runner.start(replace(job, start_limit_s=120.0, total_limit_s=120.0)).probe_result()
    assert probed.facts is not None, f"{probed.reason} {probed.log_tail}"
    ground.workspace.probe_is_through()
    return Study(ground, ground.runner, probed.facts, script_settings_of(probed.facts), script)


def run(runner: ColdRunner | ForkRunner, job: TrialJob) -> TrialResult:
    """Runs a job to its end."""
    handle = runner.start(job)
    handle.wait()
    return handle.result()
