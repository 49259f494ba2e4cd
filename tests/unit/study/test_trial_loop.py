"""The loop over trials with an imagined script: a real database, a real search, no process."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.emit.tuned_config import read_config
from autotune.lab.function_runner import FinishedRun, FunctionRunner, Measured
from autotune.measure.block import Phase
from autotune.model.events import TrialFinished
from autotune.model.outcome import Outcome
from autotune.model.result import RaisedError, RankResult, RankStatus, StartKind, TrialResult
from autotune.model.search_result import Status
from autotune.model.surroundings import Surroundings
from autotune.runner.live_runner import LiveRunner
from autotune.runner.quiet_wait import Quiet
from autotune.search.plan_state import PlanLimits
from autotune.search.study_search import Search
from autotune.space.derive import derive_space
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.study.budget import Budget, LaterFinals
from autotune.study.final_choice import FinalsResult
from autotune.study.finals import Finals
from autotune.study.jobs import Jobs
from autotune.study.measuring import MAX_REPEATS
from autotune.study.publish import count_trials, make_result, status_of, tuned_config, write_tuned_config
from autotune.study.run_times import RunTimes
from autotune.study.stop import StopRequest
from autotune.study.target import make_target
from autotune.study.trial_loop import MAX_CUT_OFF, TrialLoop
from autotune.units import GIB, MIB
from tests.unit.facts import cpu_machine, script_facts, search_spec
from tests.unit.grids import ok
from tests.unit.runner.samples import block, rank

FACTS = script_facts(num_batch_norms=3)
EARLY = RankResult(rank=0, world_size=1, status=RankStatus.ENDED, num_steps=9)


def loader_bound(settings):
    """Workers are what this job needs; each costs memory."""
    rate = 100.0 * (1 + min(settings.num_workers, 2))
    if settings.precision == "bf16":
        rate *= 0.5
    return Measured(
        samples_per_second=rate,
        peak_memory_bytes=(200 + 50 * settings.num_workers) * MIB,
        compute_samples_per_second=400.0,
        data_wait_fraction=max(0.0, 1 - rate / 400.0),
    )


class Bench:
    """One study with everything that a tuner has, over a callable."""

    def __init__(self, folder, measure=loader_bound, *, max_trials=None, cap="4GiB", budget_s=1e6, start="auto"):
        self.spec = search_spec(memory_cap=cap, max_trials=max_trials, cwd=str(folder), budget_s=budget_s, start=start)
        self.target = make_target(self.spec, cpu_machine().device)
        self.repository = Repository.open(f"sqlite:///{folder}/study.db")
        self.space = derive_space(FACTS, cpu_machine(), self.spec)
        self.events = []
        self.stop = StopRequest()
        self.measure = measure

    def create(self):
        self.repository.create_study(
            StudyRecord(
                name="train",
                spec=self.spec,
                fingerprint={},
                created_at=datetime.now(UTC),
                facts=FACTS,
                script_settings=self.space.script_settings,
            )
        )
        return self

    def loop(self, runner=None, **options):
        self.search = Search(
            self.repository.optuna_storage,
            "train",
            self.space,
            PlanLimits(usable_cpus=2.0, cap_bytes=self.target.cap_bytes),
            seed=0,
            max_trials=self.spec.trials_limit,
            spend_all=self.spec.max_trials is not None,
        )
        self.budget = Budget(self.spec.budget_s, 0.0)
        return TrialLoop(
            study="train",
            search=self.search,
            jobs=Jobs(spec=self.spec, target=self.target, facts=FACTS, script_settings=self.space.script_settings),
            runner=runner or FunctionRunner(self.measure, FACTS),
            repository=self.repository,
            budget=self.budget,
            stop=self.stop,
            on_event=self.events.append,
            **options,
        )

    def finals(self, loop):
        finals = Finals(
            study="train",
            measuring=loop.measuring,
            repository=self.repository,
            budget=self.budget,
            stop=self.stop,
            on_event=self.events.append,
            seed=0,
        )
        return finals.run(self.search.finalists(3), self.search.baseline)

    def result(self, finals, *, is_limit=False):
        trials = self.repository.trials("train")
        status = status_of(
            finals=finals,
            baseline=self.search.baseline,
            trials=trials,
            is_stopped=bool(self.stop.level),
            is_limit=is_limit,
        )
        return make_result(
            study=self.repository.study("train"),
            target=self.target,
            status=status,
            trials=trials,
            history=self.search.history,
            num_gated=self.search.num_gated,
            finals=finals,
            wall_s=1.0,
            reason="",
        )


@pytest.fixture
def bench(tmp_path):
    made = []
    # Databases in memory where there is such a place: hundreds of commits to a busy disk take minutes.
    place = tempfile.mkdtemp(dir="/dev/shm") if Path("/dev/shm").is_dir() else str(tmp_path)

    def make(**options):
        made.append(Bench(place, **options).create())
        return made[-1]

    yield make
    for each in made:
        each.repository.close()
    if place != str(tmp_path):
        shutil.rmtree(place)


class Keeping(FunctionRunner):
    """A runner with a process that cannot change the cap on memory."""

    has_process = True

    has_other = False
    """Whether the waiting process has the other cap."""

    job = None
    """The latest job."""

    def start(self, job):
        self.job = job
        return super().start(job)

    def can_switch(self, before, job):
        return job.serves and not job.request.settings.expandable_segments

    def goes_on(self, job):
        return job.serves and job.request.settings.expandable_segments == self.has_other


@pytest.mark.parametrize(("budget_s", "is_short"), [(120.0, True), (1200.0, False)])
def test_a_short_search_goes_on_in_its_process_and_a_long_one_pays_for_another(bench, budget_s, is_short):
    made = bench(budget_s=budget_s, start="live")
    runner = Keeping(made.measure, FACTS)
    loop = made.loop(runner)
    own = made.space.script_settings
    other = replace(own, expandable_segments=True)
    assert loop._prices(made.search.history).can_go_on(other), "nothing is known before the baseline"
    loop._trial(made.search.ask(), made.search.history)
    made.budget.runs.trial_took(28.0, window_s=3.0, number=0)
    made.budget.runs.trial_took(5.0, window_s=3.0, number=1, is_fresh=False, switch_s=0.0)
    prices = loop._prices(made.search.history)
    assert [prices.can_go_on(settings) for settings in (own, other)] == [True, not is_short]
    assert prices.trial_s(other) - prices.trial_s(own) > 5.0
    runner.has_other = True
    assert loop._prices(made.search.history).trial_s(own) - loop._prices(made.search.history).trial_s(other) > 5.0, (
        "the process that waits decides"
    )
    made.budget.allow_sharing(lambda: False)
    assert loop._prices(made.search.history).can_go_on(other) is not is_short, "the plan keeps its steps"


@pytest.mark.parametrize("waits", [True, False])
def test_finals_are_planned_in_new_processes_for_a_script_whose_process_never_waits(bench, waits):
    """Each trial of a Lightning script took 27 s, and the time kept for finals was that of a process that waits."""
    made = bench(budget_s=180.0, start="live")
    runner = Keeping(made.measure, FACTS)
    runner.has_process = waits
    loop = made.loop(runner)
    loop._trial(made.search.ask(), made.search.history)
    for number in (0, 1):
        made.budget.runs.trial_took(27.0, window_s=3.0, number=number)
    made.budget.keep_for((0, 1))
    assert made.budget.plans_sharing is waits
    assert (made.budget.reserve_s >= 4 * 27.0) is not waits
    made.budget.share_process()
    assert (made.budget.round_s((0, 1)) >= 2 * 27.0) is not waits


@pytest.mark.parametrize("waits", [True, False])
def test_time_is_kept_for_a_rival_whose_finals_only_the_process_that_waits_affords(bench, waits):
    made = bench(budget_s=180.0, start="live")
    runner = Keeping(made.measure, FACTS)
    loop = made.loop(runner)
    for _ in range(3):
        loop._trial(made.search.ask(), made.search.history)
    runner.has_other = not waits
    made.budget.allow_sharing(lambda: waits)
    own = made.search.history.baseline.number
    best, other = (trial.number for trial in made.search.history.feasible if trial.number != own)
    made.budget.runs._around_of = {own: 5.0, best: 99.0, other: 5.0}
    kept = []
    made.budget.keep_for = lambda contenders, **options: kept.append((contenders, options["is_in_process"]))
    loop._keep_time_for_finals(made.search.history)
    assert kept == [((own, best if waits else other), waits)]


def test_one_lost_process_does_not_change_the_plan_of_a_script_that_went_on_before(bench):
    made = bench(budget_s=180.0, start="live")
    runner = Keeping(lambda job: replace(ok(100.0), start=StartKind.LIVE), FACTS)
    loop = made.loop(runner)
    loop._trial(made.search.ask(), made.search.history)
    runner.has_process, runner.measure = False, made.measure
    loop.measuring.measure(made.space.script_settings, is_final=False)
    for number in (0, 1):
        made.budget.runs.trial_took(27.0, window_s=3.0, number=number)
    assert made.budget.plans_sharing


def test_the_scripts_own_settings_race_against_nothing(bench):
    """Faster trials may come first: taken over, or of another tuner. Without a baseline nothing can be published."""
    made = bench()
    runner = Keeping(made.measure, FACTS)
    loop = made.loop(runner)
    own = made.space.script_settings
    loop._trial(made.search.ask(), made.search.history)
    for settings, incumbent in ((own, None), (replace(own, num_workers=2), 100.0)):
        loop.measuring.measure(settings, is_final=False)
        assert runner.job.request.incumbent_samples_per_second == incumbent


def short_on_time(made, runner):
    """A loop after 100 s of 200 s, with a process whose finals are planned to be shared."""
    loop = made.loop(runner)
    loop._trial(made.search.ask(), made.search.history)
    for number in (0, 1):
        made.budget.runs.trial_took(33.0, window_s=3.0, number=number)
    made.budget.runs.trial_took(5.0, window_s=3.0, number=2, is_fresh=False, switch_s=0.0)
    made.budget.keep_for((0, 2))
    return loop


def test_a_trial_that_ends_the_useful_process_leaves_time_for_another_process(bench):
    """A trial in new processes spent the time of the start and the builds of the shared finals."""
    made = bench(budget_s=200.0, start="live")
    runner = Keeping(made.measure, FACTS)
    loop = short_on_time(made, runner)
    own = made.space.script_settings
    other = replace(own, expandable_segments=True)
    limits = []
    for settings in (own, other):
        loop.measuring.measure(settings, is_final=False)
        limits.append(runner.job.ends_by - time.monotonic())
    without_start_s = made.budget.left_to_trials_s
    assert [without_start_s - limit for limit in limits] == pytest.approx([30.0, 30.0], abs=5.0)
    prices = loop._prices(made.search.history)
    assert prices.spare_s(own) - prices.spare_s(other) > 30.0
    assert (prices.return_s(own), prices.return_s(other)) == (0.0, pytest.approx(30.0, abs=5.0))


@pytest.mark.parametrize(("outcome", "is_cached"), [(Outcome.RACED_OUT, True), (Outcome.OUT_OF_MEMORY, False)])
def test_only_a_trial_that_came_through_is_taken_to_have_filled_the_compiler_s_cache(bench, outcome, is_cached):
    made = bench(budget_s=200.0, start="live")
    loop = made.loop(Keeping(made.measure, FACTS))
    made.budget.runs = RunTimes(keeps_builds=True)
    made.budget.runs.trial_took(33.0, window_s=3.0, number=0)
    made.budget.runs.trial_took(5.0, window_s=3.0, number=1, is_fresh=False, switch_s=0.0)
    compiled = replace(made.space.script_settings, compile=True)
    price_s = made.budget.runs.trial_s(compiled, is_fresh=True)
    loop._learn_duration(replace(ok(100.0), outcome=outcome, reason="It ended."), 3, compiled)
    assert (made.budget.runs.trial_s(compiled, is_fresh=True) < price_s) is is_cached


def test_a_trial_that_its_limit_ends_is_the_last(bench):
    """The limit keeps time for another process; that time was taken for proof that the host had ended the trial."""
    made = bench(budget_s=200.0, start="live")
    runner = Keeping(made.measure, FACTS)
    loop = short_on_time(made, runner)
    now = [made.budget.spent_s]
    made.budget._now, made.budget._began, num_runs = (lambda: now[0]), 0.0, []

    def cut(job):
        num_runs.append(job)
        now[0] += made.budget.limit_s(0.0)
        return FinishedRun(None, TrialResult(outcome=Outcome.INTERRUPTED, reason="The time was spent.", wall_s=60.0))

    runner.start = cut
    end = loop.run()
    assert made.budget.left_to_trials_s > 20.0
    assert end.is_limit and len(num_runs) == 1


def test_a_script_that_ends_by_itself_has_no_process_for_several_finals(bench):
    made = bench(budget_s=120.0, start="live")
    loop = made.loop(Keeping(made.measure, FACTS))
    made.budget.runs.trial_took(20.0, window_s=3.0, number=0)
    assert made.budget.plans_sharing
    assert loop.measuring._has_learned_its_end(
        TrialResult(outcome=Outcome.INVALID, is_inconclusive=True, ranks=(EARLY,))
    )
    assert not made.budget.plans_sharing


@pytest.mark.parametrize("keeps_epochs", [False, True])
def test_a_trial_in_the_process_of_a_trial_is_not_priced_as_a_new_process(bench, keeps_epochs):
    made = bench(start="live")
    runner = LiveRunner(starter=None)
    loop = made.loop(runner)
    loop.measuring._script_end.keeps_epochs = keeps_epochs
    own = made.space.script_settings
    asked = replace(loop.measuring.jobs.trial(own, incumbent=100.0), keeps_epochs=keeps_epochs)
    runner._process = SimpleNamespace(job=asked)
    assert loop.measuring.goes_on(replace(own, num_workers=2))
    assert not loop.measuring.goes_on(replace(own, expandable_segments=True))


def test_where_each_trial_has_its_own_process_no_settings_are_left_out_for_it(bench):
    made = bench(budget_s=120.0)
    loop = made.loop(Keeping(made.measure, FACTS))
    made.budget.runs.trial_took(28.0, window_s=3.0, number=0)
    assert loop._prices(made.search.history).can_go_on(replace(made.space.script_settings, expandable_segments=True))


def test_the_baseline_is_trial_0(bench):
    one = bench(max_trials=1)
    one.loop().run()
    (trial,) = one.repository.trials("train")
    assert trial.settings == one.space.script_settings.canonical(device_is_cpu=True)
    assert trial.number == 0


def test_a_loader_bound_job_gets_its_workers_and_a_real_gain(bench):
    one = bench()
    loop = one.loop()
    loop.run()
    result = one.result(one.finals(loop))
    assert result.status is Status.IMPROVED
    assert result.best.settings.num_workers == 2
    assert result.speedup[0] == pytest.approx(3.0)
    assert result.bottleneck == "loader"
    assert result.best.peak_memory_bytes == 300 * MIB


def test_a_config_leaves_out_the_list_of_imports_which_trials_alone_need(bench, tmp_path):
    one = bench(max_trials=2)
    loop = one.loop()
    loop.run()
    result = one.result(one.finals(loop))
    study = one.repository.study("train")
    facts = replace(study.facts, imports=("torch", "torch.fx.passes"))
    study = replace(study, facts=facts, spec=replace(study.spec, cwd=str(tmp_path)))
    path, note = write_tuned_config(study, tuned_config(study, one.target, result))
    assert path is not None and not note
    assert "torch.fx" not in path.read_text()
    assert read_config(path).script.facts == replace(facts, imports=())


def test_every_trial_is_in_both_tables_and_told_once(bench):
    one = bench(max_trials=12)
    one.loop().run()
    trials = one.repository.trials("train")
    assert len(trials) == 12
    assert all(trial.optuna_told for trial in trials)
    assert one.search.num_finished == 12
    assert len({trial.settings for trial in trials}) == 12


def test_nothing_faster_keeps_the_baseline(bench):
    one = bench(measure=lambda settings: replace(loader_bound(settings), samples_per_second=100.0))
    loop = one.loop()
    loop.run()
    result = one.result(one.finals(loop))
    assert result.status is Status.NO_GAIN
    assert result.best.settings == result.baseline.settings
    assert result.speedup is None


def test_settings_that_were_not_compared_with_the_scripts_own_are_not_the_answer(bench):
    one = bench(max_trials=4)
    one.loop().run()
    best = one.search.history.best
    assert best.settings != one.search.baseline.settings
    result = one.result(FinalsResult(winner=best, baseline=one.search.baseline, comparison=None, records=()))
    assert result.status is Status.TOO_SHORT
    assert result.best.settings == result.baseline.settings
    assert any(f"not confirmed by finals: trial {best.number}" in note for note in result.notes)


def test_a_cap_below_everything_is_no_feasible(bench):
    one = bench(cap="100MiB", max_trials=5)
    loop = one.loop()
    loop.run()
    result = one.result(one.finals(loop))
    assert result.status is Status.NO_FEASIBLE
    assert result.trials.infeasible == result.trials.total > 0
    assert result.best is None


def test_a_baseline_over_the_cap_has_no_speedup(bench):
    def hungry_baseline(settings):
        peak = 3 * GIB if settings.num_workers == 0 else 1 * GIB
        return replace(loader_bound(settings), peak_memory_bytes=peak)

    one = bench(measure=hungry_baseline, cap="2GiB", max_trials=8)
    loop = one.loop()
    loop.run()
    result = one.result(one.finals(loop))
    assert result.status is Status.BASELINE_INFEASIBLE
    assert result.speedup is None
    assert not result.baseline.feasible
    assert result.best.settings.num_workers > 0


def test_a_killed_tuner_repeats_only_the_trial_that_was_running(bench):
    one = bench(max_trials=10)
    killed_after = 4

    class Killed(BaseException):
        pass

    def dies(settings):
        if len(one.repository.trials("train")) == killed_after:
            raise Killed
        return loader_bound(settings)

    one.measure = dies
    with pytest.raises(Killed):
        one.loop().run()
    one.measure = loader_bound
    loop = one.loop()
    loop._owner = replace(loop._owner, pid=loop._owner.pid + 1)
    loop.recover()
    loop.run()
    trials = one.repository.trials("train")
    assert len(trials) == 10
    assert len({trial.settings for trial in trials}) == 10
    assert one.search.num_finished == 10


def test_a_trial_that_was_recorded_but_not_told_is_told_at_the_resume(bench):
    one = bench(max_trials=6)
    loop = one.loop()
    tell = one.search.tell
    one.search.tell = lambda number, result, **_: (none for none in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    one.search.tell = tell
    assert one.repository.trials("train")[0].optuna_told is False
    again = one.loop()
    again.recover()
    assert one.search.num_finished == 1
    again.run()
    assert [trial.number for trial in one.repository.trials("train")] == list(range(6))


def test_no_secret_of_an_errors_words_is_shown_or_stored(bench):
    one = bench(max_trials=1)
    loop = one.loop()
    loop.measuring._runner = always_failing("ValueError: token=hunter2 is not valid")(one.measure, FACTS)
    loop.run()
    storage = one.repository.optuna_storage
    (trial,) = storage.get_all_trials(storage.get_study_id_from_name("train"))
    assert trial.user_attrs["reason"] == "ValueError: token=*** is not valid"
    finished = [event for event in one.events if isinstance(event, TrialFinished)]
    assert "token=***" in finished[0].result.notes[-1]
    assert "hunter2" not in repr(finished) + repr(trial) + repr(one.repository.trials("train"))


def test_no_secret_of_an_errors_words_is_shown_in_the_finals(bench):
    one = bench(max_trials=1)
    loop = one.loop()
    loop.measuring._runner = always_failing("ValueError: token=hunter2 is not valid")(one.measure, FACTS)
    result = loop.measuring.measure(one.space.script_settings, is_final=True)
    assert "hunter2" not in repr(result) and "token=***" in result.reason


def test_jobs_after_the_baseline_know_how_many_steps_it_skipped_in_every_tuner_of_the_study(bench):
    one = bench(max_trials=2)
    jobs = []

    class Skipping(FunctionRunner):
        def start(self, job):
            jobs.append(job)
            run = super().start(job)
            result = replace(run.result(), ranks=(rank(blocks=(block(num_skipped_steps=4),) * 12),))
            run.result = lambda: result
            return run

    other = one.loop(Skipping(one.measure, FACTS))  # that joined before the baseline ended
    one.loop(Skipping(one.measure, FACTS)).run()
    assert [job.own_skipped_share for job in jobs] == [None, 0.4]
    other.measuring.measure(one.space.script_settings, is_final=True)
    assert jobs[-1].own_skipped_share == 0.4


def test_steps_that_the_script_skips_by_itself_are_no_weights_broken_by_others(bench):
    one = bench(max_trials=1, start="live")
    skipping, jobs = (rank(blocks=(block(num_skipped_steps=4),) * 12),), []

    class Skipping(FunctionRunner):
        def start(self, job):
            jobs.append(job)
            run = super().start(job)
            failed = TrialResult(outcome=Outcome.INVALID, reason="Odd.", start=StartKind.LIVE, ranks=skipping)
            result = replace(run.result(), ranks=skipping) if len(jobs) == 1 else failed
            run.result = lambda: result
            return run

    loop = one.loop(Skipping(one.measure, FACTS))
    loop.run()
    one.budget.runs.trial_took(5.0, window_s=3.0, number=0)
    assert loop.measuring.measure(one.space.script_settings, is_final=False).outcome is Outcome.INVALID
    assert len(jobs) == 2


@pytest.mark.parametrize(
    ("start", "broken", "num_runs"),
    [
        (StartKind.LIVE, {"is_loss_finite": False}, 2),
        (StartKind.LIVE, {"blocks": (block(num_skipped_steps=8),)}, 2),
        (StartKind.LIVE, {"blocks": (block(phase=Phase.WARMUP, num_skipped_steps=8), block())}, 1),
        (StartKind.LIVE, {}, 1),
        (StartKind.FORKED, {"is_loss_finite": False}, 1),
    ],
)
def test_weights_broken_in_the_process_of_several_trials_are_tried_again(bench, start, broken, num_runs):
    """An earlier setting of the process, such as fp16, may have broken them; a new process tells."""
    one = bench(start="live")
    one.loop()._trial(one.search.ask(), one.search.history)
    runs = []

    class Diverged(FunctionRunner):
        def start(self, job):
            run = super().start(job)
            runs.append(job)
            if len(runs) == 1:
                failed = TrialResult(
                    outcome=Outcome.INVALID, reason="It diverged.", start=start, ranks=(rank(**broken),)
                )
                run.result = lambda: failed
            return run

    loop = one.loop(Diverged(one.measure, FACTS))
    settings = replace(one.space.script_settings, num_workers=2)
    one.budget.runs.trial_took(5.0, window_s=3.0, number=0)
    assert loop.measuring.measure(settings, is_final=False).outcome is (
        Outcome.OK if num_runs == 2 else Outcome.INVALID
    )
    assert len(runs) == num_runs


@pytest.mark.parametrize(
    ("start", "message", "is_final", "num_runs"),
    [
        (StartKind.LIVE, "Caught ValueError in DataLoader worker process 1.", False, 2),
        (StartKind.LIVE, "DataLoader worker (pid(s) 71) exited unexpectedly", False, 2),
        (StartKind.LIVE, "Caught ValueError in DataLoader worker process 1.", True, 2),
        (StartKind.LIVE, "view size is not compatible", False, 1),
        (StartKind.FORKED, "Caught ValueError in DataLoader worker process 1.", False, 1),
    ],
)
def test_a_worker_lost_in_the_process_of_several_trials_is_tried_again(bench, start, message, is_final, num_runs):
    """Workers share the file that the dataset opened in the process, before there were workers; a new process tells."""
    one = bench(start="live")
    one.loop()._trial(one.search.ask(), one.search.history)
    error = RaisedError(kind="ValueError", message=message, is_out_of_memory=False)
    failed = TrialResult(
        outcome=Outcome.CRASHED, reason=message, start=start, ranks=(rank(status=RankStatus.RAISED, error=error),)
    )
    runs = []

    class Losing(FunctionRunner):
        def start(self, job):
            run = super().start(job)
            runs.append(job)
            if len(runs) == 1:
                run.result = lambda: failed
            return run

    settings = replace(one.space.script_settings, num_workers=2)
    one.budget.runs.trial_took(5.0, window_s=3.0, number=0)
    found = one.loop(Losing(one.measure, FACTS)).measuring.measure(settings, is_final=is_final)
    assert found.outcome is (Outcome.OK if num_runs == 2 else Outcome.CRASHED)
    assert len(runs) == num_runs


def always_failing(reason):
    """A runner of a script that ends so, whatever its settings."""

    class Failing(FunctionRunner):
        def start(self, job):
            run = super().start(job)
            run.result = lambda: TrialResult(outcome=Outcome.CRASHED, reason=reason)
            return run

    return Failing


def test_a_search_ends_when_all_its_trials_are_ended_from_outside(bench):
    cut_off = TrialResult(outcome=Outcome.INTERRUPTED, reason="It was ended from outside.")
    one = bench(measure=lambda settings: cut_off)
    assert one.loop().run().reason == f"{MAX_CUT_OFF} trials in a row were ended from outside this search."
    assert 0 < len(one.repository.trials("train")) <= MAX_CUT_OFF
    assert one.result(None).status is Status.ALL_FAILED


def test_a_stop_ends_after_the_running_trial(bench):
    one = bench()

    def asks_to_stop(settings):
        one.stop.request()
        return loader_bound(settings)

    one.measure = asks_to_stop
    loop = one.loop()
    assert "asked to stop" in loop.run().reason
    assert len(one.repository.trials("train")) == 1
    assert one.result(None).status is Status.INTERRUPTED


ENDED = TrialResult(outcome=Outcome.INVALID, reason="The script ended early.", is_inconclusive=True, ranks=(EARLY,))


@pytest.mark.parametrize("ends", [TrialResult(outcome=Outcome.CRASHED, reason="SIGTERMException"), ENDED], ids=str)
@pytest.mark.parametrize("asks", [True, False])
def test_an_end_of_the_script_when_the_end_was_asked_for_says_nothing_of_the_settings(bench, asks, ends):
    """A job scheduler ended a search in its finals: the winner's final crashed by SIGTERM, and nothing was gained."""
    one = bench()

    def fails(settings):
        if asks:
            one.stop.request()
        return ends

    one.measure = fails
    result = one.loop().measuring.measure(one.space.script_settings, is_final=True)
    assert result.outcome is (Outcome.INTERRUPTED if asks else ends.outcome) and ends.reason in result.reason


def test_the_best_so_far_is_announced_with_its_trial(bench):
    one = bench(max_trials=6)
    one.loop().run()
    finished = [event for event in one.events if isinstance(event, TrialFinished)]
    best = [event for event in finished if event.is_best]
    rates = [event.result.measurement.samples_per_second for event in best]
    assert rates == sorted(rates)
    assert finished[0].is_best


def test_counts_follow_the_outcomes(bench):
    def mixed(settings):
        if settings.precision == "bf16":
            return Measured(samples_per_second=None)
        return loader_bound(settings)

    one = bench(measure=mixed, max_trials=12)
    one.loop().run()
    counts = count_trials(one.repository.trials("train"), one.search.num_gated)
    infeasible = [t for t in one.repository.trials("train") if t.result.outcome is Outcome.OUT_OF_MEMORY]
    assert counts.total == 12
    assert counts.infeasible == len(infeasible) > 0
    assert counts.complete == 12 - len(infeasible)


def disturbed_once(reasons, *, num_times=1):
    """A measurement whose first runs were disturbed so."""
    remaining = [Surroundings(window_s=1.0, throttle_reasons=reasons)] * num_times

    class Disturbed(FunctionRunner):
        def start(self, job):
            run = super().start(job)
            found = remaining.pop() if remaining else Surroundings(window_s=1.0)
            result = replace(run.result(), surroundings=found)
            run.result = lambda: result
            return run

    return Disturbed


def test_a_run_on_a_device_that_was_slowed_down_is_thrown_away(bench):
    one = bench(max_trials=1)
    loop = one.loop()
    loop.measuring._runner = disturbed_once(("thermal slowdown",))(one.measure, FACTS)
    loop.run()
    (trial,) = one.repository.trials("train")
    assert trial.result.surroundings.throttle_reasons == ()
    assert "thrown away" in trial.result.notes[-1]
    assert "thermal slowdown" in trial.result.notes[-1]


def test_a_device_that_is_always_slow_is_measured_as_it_is(bench):
    one = bench(max_trials=MAX_REPEATS + 2)
    loop = one.loop()
    loop.measuring._runner = disturbed_once(("thermal slowdown",), num_times=100)(one.measure, FACTS)
    loop.run()
    notes = [trial.result.notes for trial in one.repository.trials("train")]
    assert sum(bool(note) for note in notes) == MAX_REPEATS
    assert all(trial.result.outcome is Outcome.OK for trial in one.repository.trials("train"))


def test_a_power_cap_is_no_reason_for_another_run(bench):
    one = bench(max_trials=1)
    loop = one.loop()
    loop.measuring._runner = disturbed_once(("power cap",))(one.measure, FACTS)
    loop.run()
    assert one.repository.trials("train")[0].result.notes == ()


def test_how_long_quiet_was_waited_for_is_written_with_the_trial(bench):
    class Noisy:
        def wait(self, is_called_off, **_):
            assert not is_called_off()
            return Quiet(waited_s=2.5, is_quiet=False)

    one = bench(max_trials=1)
    loop = one.loop()
    loop.measuring._runner = disturbed_once((), num_times=0)(one.measure, FACTS)
    loop.measuring._quiet = Noisy()
    loop.run()
    found = one.repository.trials("train")[0].result.surroundings
    assert (found.waited_s, found.was_quiet) == (2.5, False)


def test_many_disturbed_trials_are_worth_a_note(bench):
    one = bench(max_trials=4)
    loop = one.loop()
    loop.measuring._runner = disturbed_once(("thermal slowdown",), num_times=100)(one.measure, FACTS)
    loop.run()
    result = one.result(one.finals(loop))
    assert any("4 of 4 trials were disturbed" in note and "thermal" in note for note in result.notes)


def test_what_the_changes_were_worth_makes_up_the_gain_of_the_best_trial(bench):
    one = bench(max_trials=12)
    loop = one.loop()
    loop.run()
    result = one.result(one.finals(loop))
    assert result.status is Status.IMPROVED
    rate, own = (one.search.history.rate(each.settings) for each in (result.best, result.baseline))
    along = [factor for factor in result.contributions if factor.is_along]
    assert math.prod(factor.ratio for factor in along) == pytest.approx(rate / own)
    changed = result.best.settings.differences(result.baseline.settings)
    assert sorted(name for factor in along for name in factor.settings) == sorted(changed)


def test_undisturbed_trials_are_worth_none(bench):
    one = bench(max_trials=4)
    loop = one.loop()
    loop.run()
    assert not any("disturbed" in note or "cap allows" in note for note in one.result(one.finals(loop)).notes)


def test_a_search_without_a_baseline_ends_with_the_reason_of_its_failure(bench):
    one = bench()
    loop = one.loop()
    loop.measuring._runner = always_failing("ValueError: no data at /d")(one.measure, FACTS)
    assert loop.run().reason == "The script's own settings cannot be measured: ValueError: no data at /d"


def test_a_baseline_that_fails_is_run_again_without_what_the_probe_wrote(bench):
    calls = []
    one = bench(max_trials=1)
    loop = one.loop(start_afresh=lambda: calls.append("afresh") or True)
    start = loop.measuring._runner.start

    def crashing(job):
        run = start(job)
        calls.append("run")
        if "afresh" not in calls:
            run.result = lambda: TrialResult(outcome=Outcome.CRASHED, reason="FileExistsError: runs/1")
        return run

    loop.measuring._runner.start = crashing
    loop.run()
    assert calls == ["run", "afresh", "run"]
    (record,) = one.repository.trials("train")
    assert record.result.outcome is Outcome.OK


def test_a_final_that_fails_is_run_again_in_the_time_of_the_finals(bench, monkeypatch):
    one = bench()
    loop = one.loop()
    loop.measuring._runner = always_failing("RuntimeError: the device is busy")(one.measure, FACTS)
    monkeypatch.setattr(Budget, "left_to_trials_s", property(lambda budget: 0.0))
    again = loop.measuring.measure(one.space.script_settings, is_final=True)
    assert any("A first run ended crashed" in note for note in again.notes)
    monkeypatch.setattr(Budget, "left_to_finals_s", property(lambda budget: 0.0))
    assert not loop.measuring.measure(one.space.script_settings, is_final=True).notes


def test_a_final_beside_a_neighbour_is_run_again_and_a_trial_is_not(bench):
    """Trials only choose the finalists, and a second run of each would cost half of the search."""
    one = bench(max_trials=1)
    loop = one.loop()
    busy = [Surroundings(window_s=1.0, usable_cpus=2.0, foreign_cpus=1.0)] * 2

    class Neighbour(FunctionRunner):
        def start(self, job):
            run = super().start(job)
            found = busy.pop() if busy else Surroundings(window_s=1.0, usable_cpus=2.0, foreign_cpus=0.0)
            result = replace(run.result(), surroundings=found)
            run.result = lambda: result
            return run

    loop.measuring._runner = Neighbour(one.measure, FACTS)
    loop.run()
    assert one.repository.trials("train")[0].result.surroundings.is_beside_load
    final = loop.measuring.measure(one.search.baseline.settings, is_final=True)
    assert not final.surroundings.is_beside_load
    assert "Others kept 1.0 of 2 cores busy." in final.notes[-1]


def test_a_trial_that_lost_its_race_beside_a_neighbour_is_run_again(bench):
    """On a public script three trials in turn lost to a quiet baseline, each within a second of other programs."""
    one = bench(max_trials=2)
    loop, lost = one.loop(), []

    class Neighbour(FunctionRunner):
        def start(self, job):
            run = super().start(job)
            result = replace(run.result(), surroundings=Surroundings(window_s=1.0, usable_cpus=2.0, foreign_cpus=0.0))
            if job.request.incumbent_samples_per_second and not lost:
                lost.append(job.request.settings)
                busy = replace(result.surroundings, foreign_cpus=1.0)
                result = replace(result, outcome=Outcome.RACED_OUT, surroundings=busy)
            run.result = lambda: result
            return run

    loop.measuring._runner = Neighbour(one.measure, FACTS)
    loop.run()
    trial = one.repository.trials("train")[1]
    assert [trial.settings] == lost and trial.result.outcome is Outcome.OK
    assert "A first run was thrown away: Others kept 1.0 of 2 cores busy." in trial.result.notes


def test_beside_a_neighbour_nobody_races_against_fewer_threads(bench):
    """A rival that looks too slow beside the neighbour may be the answer on a quiet machine."""
    one = bench(max_trials=8)
    loop, asked, measured = one.loop(), [], []
    own = one.search.script_settings.intra_op_threads

    class Loaded(FunctionRunner):
        def start(self, job):
            asked.append(job.request.incumbent_samples_per_second)
            measured.append(job.request.settings.intra_op_threads)
            run = super().start(job)
            found = Surroundings(window_s=1.0, usable_cpus=2.0, foreign_cpus=1.0)
            result = replace(run.result(), surroundings=found)
            run.result = lambda: result
            return run

    loop.measuring._runner = Loaded(lambda settings: 900.0 if settings.intra_op_threads < own else 100.0, FACTS)
    loop.run()
    assert min(measured) < own
    assert max(rate or 0.0 for rate in asked) == 100.0


def test_a_disturbed_final_is_repeated_while_the_finals_that_must_follow_keep_their_time(bench):
    one = bench(max_trials=1)
    loop = one.loop()
    result = replace(loop.measuring.measure(one.search.script_settings, is_final=True), wall_s=30.0)
    now = [0.0]
    one.budget = loop._budget = loop.measuring._budget = Budget(200.0, 0.0, lambda: now[0])
    assert loop.measuring._may_repeat(result, is_final=True, later=LaterFinals(others_s=90.0, num_alike=1))
    now[0] = 70.0
    assert not loop.measuring._may_repeat(result, is_final=True, later=LaterFinals(others_s=90.0, num_alike=1))
    assert loop.measuring._may_repeat(result, is_final=True, later=LaterFinals(others_s=60.0, num_alike=1))
    now[0] = 170.0  # the last run of the last round
    assert loop.measuring._may_repeat(result, is_final=True, later=LaterFinals())
