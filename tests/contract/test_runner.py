"""Every runner under the one contract: replayed and function here, cold as a real process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.host import cpu_device
from autotune.lab.function_runner import FunctionRunner, Measured
from autotune.lab.replay import ReplayRunner
from autotune.protocol.job import Mode, TrialJob
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.runner import Runner
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.space.script_settings import script_settings_of
from autotune.units import MIB
from tests.contract.runner_contract import AtOnceContract, RunnerContract, finish
from tests.integration.runner.ground import SCRIPTS, make_job
from tests.jobs import changed
from tests.unit.facts import script_facts
from tests.unit.grids import CAP_BYTES, grid
from tests.unit.runner.samples import job


class TestFunction(AtOnceContract):
    @pytest.fixture
    def runner(self) -> Runner:
        def measure(settings: Settings) -> Measured:
            return Measured(samples_per_second=100.0, peak_memory_bytes=(settings.batch_size or 0) * MIB)

        return FunctionRunner(measure, script_facts())

    @pytest.fixture
    def trial(self) -> TrialJob:
        return job(cap_bytes=64 * MIB)

    @pytest.fixture
    def too_large(self) -> TrialJob:
        return job(settings=Settings(batch_size=128), cap_bytes=64 * MIB)

    @pytest.fixture
    def probe(self) -> TrialJob:
        return job(mode=Mode.PROBE, settings=None, script_settings=None, facts=None)


class TestReplay(AtOnceContract):
    @pytest.fixture
    def runner(self) -> Runner:
        return ReplayRunner(grid(), seed=1)

    @pytest.fixture
    def trial(self) -> TrialJob:
        return job(settings=grid().best, cap_bytes=CAP_BYTES)

    @pytest.fixture
    def too_large(self) -> TrialJob:
        return job(settings=replace(grid().best, num_workers=4), cap_bytes=CAP_BYTES)

    @pytest.fixture
    def probe(self) -> TrialJob:
        return job(mode=Mode.PROBE, settings=None, script_settings=None, facts=None)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text((SCRIPTS / "trains.py").read_text().replace("num_workers=2", "num_workers=0"))
    return folder


@pytest.fixture(scope="module")
def cold(project: Path) -> Iterator[Runner]:
    workspace = Workspace.open(None, cwd=project, command=("python", "train.py"))
    yield ColdRunner(workspace, cpu_device())
    workspace.remove()


@pytest.fixture(scope="module")
def probed_trial(project: Path, cold: Runner) -> TrialJob:
    limits = {"start_limit_s": 60.0, "total_limit_s": 90.0}
    probe = make_job(project, "train.py", mode=Mode.PROBE, settings=None, script_settings=None, facts=None, **limits)
    run = cold.start(probe)
    finish(run)
    facts = run.probe_result().facts
    assert facts is not None
    own = script_settings_of(facts)
    return changed(probe, mode=Mode.TRIAL, settings=own, script_settings=own, facts=facts)


@pytest.mark.slow
class TestCold(RunnerContract):
    @pytest.fixture
    def runner(self, cold: Runner) -> Runner:
        return cold

    @pytest.fixture
    def trial(self, probed_trial: TrialJob) -> TrialJob:
        return probed_trial

    @pytest.fixture
    def too_large(self, probed_trial: TrialJob) -> TrialJob:
        return replace(probed_trial, cap_bytes=40 * MIB)

    @pytest.fixture
    def probe(self, probed_trial: TrialJob) -> TrialJob:
        return changed(probed_trial, mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
