"""Whole verifications in this process, over a callable in place of the user's script."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from autotune.emit.tuned_config import read_config
from autotune.errors import EveryTrialFailedError, UsageError
from autotune.lab.function_runner import Measured, OutOfMemoryError
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import SearchResult, Status
from autotune.model.surroundings import Surroundings
from autotune.model.verification import Finding
from autotune.protocol.job import Mode
from autotune.study.repeats import Repeats
from autotune.study.stop import StopRequest
from autotune.study.verifying import verify
from tests.unit.report.examples import measured

from .whole_search import folder  # noqa: F401 - a fixture


class Verified:
    """A folder with a finished study, and its verification."""

    def __init__(self, folder):  # noqa: F811
        self.folder, self.jobs = folder, []
        self.start = folder.runner.start
        folder.runner.start = self._start

    def _start(self, job):
        self.jobs.append(job)
        return self.start(job)

    def verify(self, study="train", **options):
        return verify(
            study,
            storage=str(self.folder.database),
            cwd=self.folder.path,
            on_event=self.folder.events.append,
            open_runner=self.folder.open_runner,
            **options,
        )

    def stored(self, study="train"):
        with self.folder.repository() as repository:
            return SearchResult.from_document(repository.study(study).result)


@pytest.fixture
def finished(folder):  # noqa: F811
    result = folder.search()
    assert result.status is Status.IMPROVED
    return Verified(folder)


def test_a_claim_that_holds_is_stored_with_the_study_and_with_the_config(finished):
    result, is_in_config = finished.verify()
    found = result.verifications[-1]
    assert found.finding is Finding.HELD
    assert found.real[0] == pytest.approx(3.0)
    assert finished.stored().verifications == (found,)
    assert is_in_config
    verified = read_config(finished.folder.path / "autotune.yaml").provenance.verified
    assert (verified.real, verified.finding, verified.num_pairs) == (found.real, Finding.HELD, 3)
    assert "verified, the claim held: 3.00x" in (finished.folder.path / "autotune.yaml").read_text()


def test_both_sides_are_real_training_counted_for_the_same_time_in_turns(finished):
    finished.verify(num_pairs=2, window_s=7.0)
    counted = [job for job in finished.jobs if job.mode is Mode.RUN]
    assert {job.request.window.max_window_s for job in counted} == {7.0}
    assert sorted(job.request.settings.num_workers for job in counted) == [0, 0, 2, 2]
    assert not any(job.serves for job in counted)


def test_settings_that_are_slower_now_are_called_so(finished):
    finished.folder.runner.measure = lambda settings: 100.0 - 10 * settings.num_workers
    result, _ = finished.verify()
    assert result.verifications[-1].finding is Finding.SLOWER


def test_a_second_verification_stands_beside_the_first(finished):
    finished.verify()
    finished.folder.runner.measure = lambda settings: 100.0 + settings.num_workers
    finished.verify()
    assert [found.finding for found in finished.stored().verifications] == [Finding.HELD, Finding.FELL_SHORT]
    verified = read_config(finished.folder.path / "autotune.yaml").provenance.verified
    assert verified.finding is Finding.FELL_SHORT


def test_a_config_with_a_remark_of_the_user_is_left_as_it_is(finished):
    path = finished.folder.path / "autotune.yaml"
    path.write_text(path.read_text() + "# ask Ada before a change\n")
    before = path.read_text()
    _, is_in_config = finished.verify()
    assert not is_in_config
    assert path.read_text() == before


def test_the_config_of_a_later_study_is_left_as_it_is(finished):
    finished.folder.search(study="later")
    before = (finished.folder.path / "autotune.yaml").read_text()
    _, is_in_config = finished.verify()
    assert not is_in_config
    assert (finished.folder.path / "autotune.yaml").read_text() == before


def test_a_study_without_a_gain_has_nothing_to_verify(folder):  # noqa: F811
    folder.runner.measure = lambda settings: 100.0
    folder.search()
    with pytest.raises(UsageError, match="no gain"):
        Verified(folder).verify()


def test_a_changed_script_is_not_verified(finished):
    finished.folder.script.write_text("import model, os\n")
    with pytest.raises(UsageError, match="script"):
        finished.verify()


def test_a_study_of_somebody_else_is_not_run(finished, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    with pytest.raises(UsageError, match="autotune trust train"):
        finished.verify()
    assert not any(job.mode is Mode.RUN for job in finished.jobs)


def test_a_run_that_fails_ends_the_verification_and_names_the_side(finished):
    def fails(settings):
        if settings.num_workers:
            raise OutOfMemoryError("It ran out of memory.")
        return Measured(samples_per_second=100.0)

    finished.folder.runner.measure = fails
    with pytest.raises(EveryTrialFailedError, match="under the tuned settings"):
        finished.verify()
    assert finished.stored().verifications == ()


def test_a_stopped_verification_stores_nothing_and_leaves_the_study_free(finished):
    stop = StopRequest(saves=False)
    finished.folder.runner.measure = lambda settings: stop.request() or 100.0
    with pytest.raises(InterruptedError):
        finished.verify(stop=stop)
    assert finished.stored().verifications == ()
    with finished.folder.repository() as repository:
        assert repository.live_owners("train", now=datetime.now(UTC)) == ()


def test_a_single_pair_says_nothing(finished):
    with pytest.raises(UsageError, match="1 pairs"):
        finished.verify(num_pairs=1)


# Disturbed runs


def beside(foreign_cpus, rate=100.0):
    return measured(rate, surroundings=Surroundings(window_s=5.0, usable_cpus=2.0, foreign_cpus=foreign_cpus))


def repeated(*results, most=2):
    queue = list(results)
    repeats = Repeats(most, lambda found: found.disturbances_by_others)
    return repeats.undisturbed(lambda: queue.pop(0), lambda _: True), queue


def test_a_run_beside_a_neighbour_is_run_again_and_the_note_says_so():
    result, queue = repeated(beside(1.0, 50.0), beside(0.1, 100.0))
    assert result.measurement.samples_per_second == 100.0
    assert "Others kept 1.0 of 2 cores busy." in result.notes[-1]
    assert queue == []


def test_the_quieter_of_two_disturbed_runs_counts():
    result, _ = repeated(beside(0.8, 90.0), beside(1.9, 10.0))
    assert result.measurement.samples_per_second == 90.0


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.INVALID, Outcome.INTERRUPTED])
def test_a_repeat_that_fails_does_not_take_the_place_of_a_rate(outcome):
    result, queue = repeated(beside(0.8, 90.0), TrialResult(outcome=outcome, reason="It failed."))
    assert result.measurement.samples_per_second == 90.0
    assert queue == []


def test_a_repeat_that_runs_out_of_memory_tells_more_than_a_rate():
    result, _ = repeated(beside(0.8, 90.0), TrialResult(outcome=Outcome.OUT_OF_MEMORY, reason="It is full."))
    assert result.outcome is Outcome.OUT_OF_MEMORY


def test_a_quiet_run_is_not_repeated():
    _, queue = repeated(beside(0.2), beside(0.0))
    assert len(queue) == 1


def test_repeats_have_a_limit():
    repeats = Repeats(2, lambda found: found.disturbances_by_others)
    runs = []

    def run():
        runs.append(beside(1.5))
        return runs[-1]

    for _ in range(4):
        repeats.undisturbed(run, lambda _: True)
    assert len(runs) == 6
