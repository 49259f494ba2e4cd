"""Ranks of one trial change phase at the same step, and stop at the same step, so that none waits for the others."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.measure.block import Phase
from autotune.measure.window_stopping import StopReason
from autotune.model.facts import LossReduction, ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult, RankStatus
from autotune.protocol.codec import from_plain, to_plain
from autotune.protocol.job import Mode
from autotune.protocol.paths import TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.settings.multiprocessing_context import StartMethod
from autotune.space.script_settings import script_settings_of
from autotune.trial.meter.host_clock import HostClock
from autotune.trial.meter.measuring_plan import Plan
from autotune.trial.meter.meter import Meter
from autotune.trial.meter.rank_sync import LEAD_STEPS, Agreement, Progress
from autotune.trial.step.steps import Steps
from autotune.verdict.judge import Ending, judge
from tests.integration.trial.ground import INJECT, QUICK, SCRIPTS
from tests.jobs import job_of

# In one process: meters of two ranks over one file -------------------------------------------------------------


class Rank:
    """A meter that is told its steps, and notes at which of them it changed phase."""

    def __init__(self, number: int, path: Path, *, step_s: float, num_ranks: int = 2, **of_plan: Any) -> None:
        self.steps = Steps()
        self.steps.num_backwards = self.steps.num_updates = self.steps.num_steps = 1
        self.changes: list[tuple[int, str]] = []
        self.stopped: StopReason | None = None
        self.now = 0.0
        self.step_s = step_s
        clock = HostClock()
        clock.mark = lambda: self.now  # type: ignore[method-assign]
        values: dict[str, Any] = {
            "rule": QUICK,
            "has_loader": True,
            "num_workers": 2,
            "num_queued": 4,
            "micro_batches_per_step": 1,
            "incumbent_samples_per_second": None,
            "samples_per_step": None,
        }
        self.meter = Meter(
            Plan(**{**values, **of_plan}),
            steps=self.steps,
            clock=clock,
            agreement=Agreement(Progress(path), number, num_ranks),
            open_gate=lambda: True,
            finish=self._finish,
        )
        self.phase = self.meter.phase

    def step(self) -> None:
        self.meter.counters.delivered(8.0, self.step_s / 10)
        self.now += self.step_s
        self.steps.num_backwards += 1
        self.steps.num_updates += 1
        self.steps.num_steps += 1
        self.meter.arrive()
        if self.meter.phase is not self.phase:
            self.phase = self.meter.phase
            self.changes.append((self.steps.num_steps, self.phase.value))

    def _finish(self, reason: StopReason) -> None:
        if self.stopped is None:
            self.stopped = reason
            self.changes.append((self.steps.num_steps, "stopped"))


@pytest.fixture
def quick_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.trial.meter.phase_rules.MIN_COMPUTE_S", 0.0)


@pytest.mark.parametrize("other_step_s", [0.001, 0.003, 0.0004])
@pytest.mark.parametrize("ahead", [0, 1])
def test_two_ranks_change_phase_at_the_same_steps_though_their_blocks_differ(
    tmp_path: Path, quick_phases: None, other_step_s: float, ahead: int
) -> None:
    lead = Rank(0, tmp_path / "progress", step_s=0.001)
    other = Rank(1, tmp_path / "progress", step_s=other_step_s)
    for _ in range(ahead):
        other.step()
    while lead.stopped is None:
        lead.step()
        if other.stopped is None:
            other.step()
    for _ in range(5):
        if other.stopped is None:
            other.step()
    assert [phase for _, phase in lead.changes] == ["compute", "ramp", "window", "stopped"]
    assert other.changes == lead.changes
    assert lead.stopped is other.stopped is StopReason.CONVERGED


def test_two_ranks_that_come_to_an_epochs_end_go_on_together(tmp_path: Path, quick_phases: None) -> None:
    ranks = [Rank(number, tmp_path / "progress", step_s=0.001) for number in (0, 1)]
    while Phase.WINDOW not in {rank.phase for rank in ranks}:
        for rank in ranks:
            rank.step()
    for rank in ranks:
        rank.step()
    for rank in ranks:  # the second notes what the first did since, and must not take it for its own window
        rank.meter.epoch_ended()
        rank.phase = rank.meter.phase
        rank.changes.clear()
        rank.step()
    while ranks[0].stopped is None:
        for rank in ranks:
            rank.step()
    assert [phase for _, phase in ranks[0].changes] == ["window", "stopped"]
    assert ranks[0].changes == ranks[1].changes


@pytest.mark.parametrize(
    ("incumbent", "phases"),
    [(10_000.0, ["compute", "stopped"]), (8_500.0, ["compute", "ramp", "window", "stopped"])],
    ids=["by compute alone", "in the window"],
)
def test_two_ranks_that_have_lost_their_race_stop_at_the_same_step(
    tmp_path: Path, quick_phases: None, incumbent: float, phases: list[str]
) -> None:
    """Each does at most 8 samples per millisecond, and a ninth more without its loader."""
    patient = replace(QUICK, half_width_ratio=1e-6)
    plan = {"incumbent_samples_per_second": incumbent, "rule": patient}
    ranks = [Rank(number, tmp_path / "progress", step_s=0.001, **plan) for number in (0, 1)]
    while any(rank.stopped is None for rank in ranks):
        for rank in ranks:
            is_slow = rank.phase is Phase.WINDOW and rank.steps.num_steps // 10 % 3 == 0
            rank.step_s = 0.0012 if is_slow else 0.001
            if rank.stopped is None:
                rank.step()
    assert [phase for _, phase in ranks[0].changes] == phases
    assert ranks[0].changes == ranks[1].changes
    assert {rank.stopped for rank in ranks} == {StopReason.RACED_OUT}


def test_a_rank_that_thinks_it_has_lost_stops_nobody(tmp_path: Path, quick_phases: None) -> None:
    """Whatever a rank finds after the first one has decided, or by itself, all go on together."""
    lead = Rank(0, tmp_path / "progress", step_s=0.001)
    other = Rank(1, tmp_path / "progress", step_s=0.001, incumbent_samples_per_second=1e9)
    while lead.stopped is None or other.stopped is None:
        for rank in (lead, other):
            if rank.stopped is None:
                rank.step()
    assert other.changes == lead.changes
    assert other.stopped is lead.stopped is StopReason.CONVERGED


def test_the_meters_own_work_is_not_done_after_every_short_step(tmp_path: Path, quick_phases: None) -> None:
    """Otherwise the compute-only rate of a job of small steps comes out below the rate with its loader."""
    rank = Rank(0, tmp_path / "progress", step_s=0.0003, num_ranks=1)
    while rank.stopped is None:
        rank.step()
    blocks = rank.meter.blocks()
    assert min(block.duration_s for block in blocks if block.phase is Phase.COMPUTE) >= 0.02
    assert min(block.duration_s for block in blocks if block.phase is Phase.WINDOW) >= QUICK.min_block_s
    assert rank.meter.compute_samples_per_second == pytest.approx(8 / 0.0003 / 0.9)


def test_what_was_agreed_before_a_phase_began_does_not_count_in_it(tmp_path: Path) -> None:
    agreement = Agreement(Progress(tmp_path / "progress"), 0, 1)
    assert agreement.reached(Mark.WINDOW, wanted=True, num_steps=5, since=3)
    assert not agreement.reached(Mark.WINDOW, wanted=False, num_steps=9, since=5)
    assert agreement.reached(Mark.WINDOW, wanted=True, num_steps=9, since=5)


def test_only_the_first_rank_decides(tmp_path: Path) -> None:
    first, second = (Agreement(Progress(tmp_path / "progress"), number, 2) for number in (0, 1))
    assert not second.reached(Mark.STOP, wanted=True, num_steps=10, since=0)
    assert not first.reached(Mark.STOP, wanted=True, num_steps=10, since=0)
    assert not second.reached(Mark.STOP, wanted=False, num_steps=10 + LEAD_STEPS - 1, since=0)
    assert second.reached(Mark.STOP, wanted=False, num_steps=10 + LEAD_STEPS, since=0)


# In processes ----------------------------------------------------------------------------------------------------


def run(command: tuple[str, ...], folder: Path, limit_s: float = 120.0, **values: Any) -> tuple[Any, list[RankResult]]:
    """Runs a command as one trial, from a cold start; (exit code, reports)."""
    paths = TrialPaths(folder)
    paths.results.mkdir(parents=True)
    job = job_of(
        **{
            "command": command,
            "cwd": str(folder),
            "cap_bytes": 8 << 30,
            "window": QUICK,
            "start_limit_s": limit_s,
            "total_limit_s": limit_s,
            "world_size": 2,
            **values,
        }
    )
    paths.job.write_text(json.dumps(to_plain(job)))
    environment = {
        **os.environ,
        "AUTOTUNE_TRIAL": str(folder),
        "AUTOTUNE_STARTED_AT": repr(time.monotonic()),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(INJECT), os.environ.get("PYTHONPATH", "")])),
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(command, env=environment, cwd=folder, start_new_session=True)
    try:
        code = process.wait(limit_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    reports = sorted(paths.results.glob("rank-*.json"))
    return (job, code), [from_plain(RankResult, json.loads(report.read_text())) for report in reports]


def probed(command: tuple[str, ...], folder: Path) -> ScriptFacts:
    """Facts of a script's ranks."""
    _, reports = run(command, folder / "probe", mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    facts = reports[0].facts
    assert facts is not None
    return facts


def started_by(way: str, *arguments: str) -> tuple[str, ...]:
    script = str(SCRIPTS / "ddp.py")
    if way == "spawn":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])
        return (sys.executable, script, "--spawn", "2", *arguments)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max-restarts=0")
    return (sys.executable, *launcher, script, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["torchrun", "spawn"])
def test_both_ranks_of_a_data_parallel_job_report_and_stop_at_the_same_step(tmp_path: Path, way: str) -> None:
    command = started_by(way, "--uneven")
    (_, code), reports = run(
        command, tmp_path / "probe", mode=Mode.PROBE, settings=None, script_settings=None, facts=None
    )
    assert code == 0
    assert [(r.rank, r.world_size, r.status) for r in reports] == [(n, 2, RankStatus.PROBED) for n in (0, 1)]
    assert reports[0].facts is not None
    facts = replace(reports[0].facts, loss_reduction=LossReduction.MEAN)
    assert facts.world_size == 2
    script_settings = script_settings_of(facts)
    settings = replace(script_settings, num_workers=1, batch_size=4, grad_accum_steps=2)
    (job, code), reports = run(
        command,
        tmp_path / "trial",
        mode=Mode.TRIAL,
        settings=settings,
        script_settings=script_settings,
        facts=facts,
        # A restart may last as long as a window. The workers of spawned ranks are spawned too, and import torch anew.
        window=replace(QUICK, max_window_s=30.0),
    )
    assert code == 0
    verdict = judge(job, Ending(exit_code=code, signal=None), reports)
    assert verdict.outcome is Outcome.OK, verdict
    assert [report.rank for report in reports] == [0, 1]
    assert reports[0].num_steps == reports[1].num_steps
    assert all(report.observed["grad_accum_steps"] == 2 for report in reports)
    for phase in (Phase.WARMUP, Phase.COMPUTE, Phase.RAMP):
        counts = [sum(block.num_steps for block in report.blocks if block.phase is phase) for report in reports]
        assert counts[0] == counts[1], phase
    # The cost of an epoch's start is looked at by both, after the window.
    after = [sum(b.num_steps for b in report.blocks if b.phase is Phase.RESTART) for report in reports]
    assert after == [1, 1]
    assert all(report.epoch_end_s is not None for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["torchrun", "spawn"])
def test_the_rank_that_runs_out_of_memory_is_believed(tmp_path: Path, way: str) -> None:
    """Its launcher reports an error too, and must not hide the reason."""
    command = started_by(way, "--uneven")
    _, reports = run(command, tmp_path / "probe", mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    facts = reports[0].facts
    assert facts is not None
    script_settings = script_settings_of(facts)
    failing = started_by(way, "--uneven", "--fail", "1")
    (job, code), reports = run(
        failing,
        tmp_path / "trial",
        mode=Mode.TRIAL,
        settings=script_settings,
        script_settings=script_settings,
        facts=facts,
    )
    assert code != 0
    verdict = judge(job, Ending(exit_code=code, signal=None), reports)
    assert verdict.outcome is Outcome.OUT_OF_MEMORY, (verdict, reports)
    assert "rank 1 has no more" in verdict.reason


@pytest.mark.slow
def test_spawned_ranks_that_fail_while_their_workers_wait_end_the_trial(tmp_path: Path) -> None:
    """The rank has killed its persistent workers by the time that their loader is told to end."""
    facts = probed(started_by("spawn", "--children", "2"), tmp_path)
    script_settings = script_settings_of(facts)
    (job, code), reports = run(
        started_by("spawn", "--children", "2", "--fail", "1", "--fail-at", "3", "--late-s", "2"),
        tmp_path / "trial",
        mode=Mode.TRIAL,
        settings=replace(script_settings, multiprocessing_context=StartMethod.FORK, persistent_workers=True),
        script_settings=script_settings,
        facts=facts,
    )
    verdict = judge(job, Ending(exit_code=code, signal=None), reports)
    assert verdict.outcome is Outcome.OUT_OF_MEMORY, (verdict, reports)


@pytest.mark.slow
def test_spawned_ranks_are_known_to_have_inherited_how_their_workers_start(tmp_path: Path) -> None:
    command = started_by("spawn", "--children", "1")
    facts = probed(command, tmp_path)
    assert facts.loader is not None and facts.loader.inherited_start == "spawn"
    own = script_settings_of(facts)
    values = {"mode": Mode.TRIAL, "script_settings": own, "facts": facts}
    settings = replace(own, multiprocessing_context=StartMethod.FORK)
    (job, code), reports = run(command, tmp_path / "forked", settings=settings, **values)
    verdict = judge(job, Ending(exit_code=code, signal=None), reports)
    assert verdict.outcome is Outcome.OK, verdict
    assert [report.observed["multiprocessing_context"] for report in reports] == ["fork"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.TRIAL, Mode.RUN])
def test_the_samples_that_the_user_gives_for_a_step_are_those_of_all_ranks(tmp_path: Path, mode: Mode) -> None:
    command = started_by("torchrun")
    facts = probed(command, tmp_path)
    own = script_settings_of(facts)
    values = {"mode": mode, "settings": own, "script_settings": own, "facts": facts, "samples_per_step": 24.0}
    (_, code), reports = run(command, tmp_path / "trial", **values)
    assert code == 0 and [report.status for report in reports] == [RankStatus.MEASURED] * 2
    windows = [[block for block in report.blocks if block.phase is Phase.WINDOW] for report in reports]
    samples = sum(sum(b.num_samples for b in window) / sum(b.num_steps for b in window) for window in windows)
    assert samples == pytest.approx(24.0)


@pytest.mark.slow
def test_a_data_parallel_job_that_cannot_win_ends_before_its_loaders_build_anything(tmp_path: Path) -> None:
    command = started_by("torchrun")
    _, reports = run(command, tmp_path / "probe", mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    facts = reports[0].facts
    assert facts is not None
    script_settings = script_settings_of(facts)
    values = {"mode": Mode.TRIAL, "settings": script_settings, "script_settings": script_settings, "facts": facts}
    (job, code), reports = run(command, tmp_path / "alone", **values)
    own = judge(job, Ending(exit_code=code, signal=None), reports)
    assert own.outcome is Outcome.OK and own.measurement is not None, own
    # More than either rank does, and much less than both of them together: no reason to end.
    beaten = {**values, "incumbent_samples_per_second": 0.6 * own.measurement.samples_per_second}
    (job, code), reports = run(command, tmp_path / "beaten", **beaten)
    assert judge(job, Ending(exit_code=code, signal=None), reports).outcome is Outcome.OK
    (job, code), reports = run(command, tmp_path / "lost", **{**values, "incumbent_samples_per_second": 1e9})
    lost = judge(job, Ending(exit_code=code, signal=None), reports)
    assert lost.outcome is Outcome.RACED_OUT, lost
    assert [report.status for report in reports] == [RankStatus.RACED_OUT] * 2
    assert {block.phase for report in reports for block in report.blocks} == {Phase.WARMUP, Phase.COMPUTE}
