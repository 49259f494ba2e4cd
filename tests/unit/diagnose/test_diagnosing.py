from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autotune.diagnose import diagnosing
from autotune.diagnose.diagnosing import SHORTER
from autotune.diagnose.findings import make_diagnosis
from autotune.errors import EveryTrialFailedError, NoFeasibleSettingsError
from autotune.measure.bottleneck import BottleneckKind
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult, RankStatus, TrialResult
from autotune.model.surroundings import Surroundings
from autotune.protocol.codec import from_plain, to_plain
from autotune.runner.quiet_wait import Quiet
from autotune.settings import Settings
from autotune.study.stop import StopRequest
from autotune.study.target import make_target
from autotune.verdict.aggregate import measurement_of
from tests.unit.diagnoses import observation
from tests.unit.facts import cpu_machine, script_facts, search_spec
from tests.unit.runner.samples import job, rank


def looked_at(**changes):
    ranks = (rank(observation=observation(), peak_allocated_bytes=None),)
    values = {"outcome": Outcome.OK, "measurement": measurement_of(ranks), "ranks": ranks, **changes}
    return TrialResult(**values)


def diagnosed(result):
    spec = search_spec()
    target = make_target(spec, cpu_machine().device)
    return make_diagnosis(spec, target, Settings(batch_size=64), script_facts(), result)


def test_figures_are_those_of_the_window_and_of_the_observation():
    found = diagnosed(looked_at(peak_memory_bytes=1 << 30))
    assert found.samples_per_second == pytest.approx(6400.0)
    assert found.samples_per_step == 64.0 and found.step_s == pytest.approx(0.01)
    assert found.ceiling_samples_per_second == 8000.0 and found.compute_s == pytest.approx(0.008)
    assert found.bottleneck is BottleneckKind.LOADER and found.data_wait_fraction == pytest.approx(0.2)
    assert found.observation == observation() and found.advice == ()


def test_a_ceiling_below_the_rate_is_noise_and_is_lifted_to_it():
    ranks = (rank(observation=observation(), compute_samples_per_second=6000.0),)
    assert diagnosed(looked_at(ranks=ranks, measurement=measurement_of(ranks))).ceiling_samples_per_second == (
        pytest.approx(6400.0)
    )


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (TrialResult(outcome=Outcome.OUT_OF_MEMORY, reason="It ran out."), NoFeasibleSettingsError, "It ran out."),
        (
            TrialResult(outcome=Outcome.CRASHED, reason="KeyError: 'x'", log_tail="last words"),
            EveryTrialFailedError,
            "KeyError: 'x' The last lines that it printed:\nlast words",
        ),
        (looked_at(ranks=(rank(),)), EveryTrialFailedError, "before its loop could be looked at"),
        (TrialResult(outcome=Outcome.INTERRUPTED), InterruptedError, ""),
    ],
    ids=["memory", "crash", "too short", "stopped"],
)
def test_what_was_not_seen_is_said_and_why(result, error, words):
    with pytest.raises(error) as raised:
        diagnosed(result)
    assert words in str(raised.value)


class Runner:
    """Gives one result after the other, and notes what was asked."""

    def __init__(self, *results):
        self.results, self.jobs = list(results), []

    def start(self, asked):
        self.jobs.append(asked)
        return self

    def poll(self):
        return True

    def result(self, *, profiles_to):
        return self.results.pop(0)


class Machine:
    """Found in one state after the other, before each run."""

    def __init__(self, runner, *found):
        self.found, self.asked_before, self._runner = list(found), [], runner

    def wait(self, is_called_off):
        assert not is_called_off()
        self.asked_before.append(len(self._runner.jobs))
        return self.found.pop(0) if self.found else Quiet(waited_s=0.0, is_quiet=True)


def run(runner, machine=None):
    return diagnosing._run(job(), runner, machine or Machine(runner), StopRequest(), None)


def test_a_script_that_was_misled_about_its_epochs_runs_once_more_with_its_own():
    failed = TrialResult(outcome=Outcome.CRASHED, ranks=(rank(is_past_its_epoch=True),))
    runner = Runner(failed, looked_at())
    assert run(runner).outcome is Outcome.OK
    assert [asked.keeps_epochs for asked in runner.jobs] == [False, True]


def test_a_script_that_ended_early_runs_once_more_with_a_shorter_warm_up():
    early = TrialResult(
        outcome=Outcome.INVALID, is_inconclusive=True, ranks=(rank(status=RankStatus.ENDED, num_steps=90),)
    )
    runner = Runner(early, looked_at())
    assert run(runner).outcome is Outcome.OK
    assert [asked.script_steps for asked in runner.jobs] == [None, 90]


def test_a_script_that_stopped_before_it_was_looked_at_runs_once_more_with_a_shorter_window():
    runner = Runner(looked_at(ranks=(rank(),)), looked_at())
    assert run(runner).ranks[0].observation is not None
    first, second = (asked.request.window for asked in runner.jobs)
    assert second.max_window_s == SHORTER * first.max_window_s
    assert second.min_window_s <= second.max_window_s


def test_every_run_waits_for_a_quiet_machine_and_says_how_it_was_found():
    early = TrialResult(
        outcome=Outcome.INVALID, is_inconclusive=True, ranks=(rank(status=RankStatus.ENDED, num_steps=90),)
    )
    runner = Runner(early, looked_at(surroundings=Surroundings(window_s=1.0)))
    machine = Machine(runner, Quiet(waited_s=0.0, is_quiet=True), Quiet(waited_s=3.0, is_quiet=False))
    result = run(runner, machine)
    assert machine.asked_before == [0, 1]
    assert result.surroundings == Surroundings(window_s=1.0, waited_s=3.0, was_quiet=False)
    assert diagnosed(result).notes[0] == "Other programs were busy when the trial began."


def test_what_disturbed_a_run_is_said_once():
    busy = Surroundings(window_s=1.0, usable_cpus=2.0, foreign_cpus=1.5, was_quiet=False)
    *said, caution = diagnosed(looked_at(surroundings=busy, notes=busy.disturbances)).notes
    assert tuple(said) == busy.disturbances and len(said) == 1
    assert "may promise far too much" in caution


def test_any_other_failure_is_not_tried_again():
    crashed = TrialResult(outcome=Outcome.CRASHED, reason="no")
    assert run(Runner(crashed)) is crashed


def test_an_observation_survives_its_file_and_absurd_ones_are_refused():
    report = json.loads(json.dumps(to_plain(rank(observation=observation()))))
    assert from_plain(RankResult, report).observation == observation()
    report["observation"]["steps"]["wall_s"] = -1.0
    with pytest.raises(ValueError, match="wall_s"):
        from_plain(RankResult, report)
    assert replace(rank(observation=observation()), observation=None) == rank()
