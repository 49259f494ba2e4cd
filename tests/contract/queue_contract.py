"""What every database behind a JobQueue must do; one subclass per database gives the `url` of an empty one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autotune.errors import LeaseLostError, StudyExistsError, StudyNotFoundError
from autotune.store.job_queue import JobQueue
from autotune.store.job_records import (
    Heartbeat,
    JobRecord,
    JobRequest,
    JobStatus,
    LeaseEnd,
    LeaseRecord,
    LeaseState,
    Order,
    Wish,
    WorkerRecord,
    WorkerStatus,
)
from autotune.store.repository import Repository

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
ALIVE_S = 90.0
DONE = LeaseEnd(state=LeaseState.DONE, exit_code=0, document={"status": "improved"}, config="schema: 1\n")
STOPPED = LeaseEnd(state=LeaseState.STOPPED, exit_code=130)
FAILED = LeaseEnd(state=LeaseState.FAILED, exit_code=4, message="it crashed", is_repeatable=True)
PROBED = '{"event":"probe_finished"}'


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_worker(name: str, **values: object) -> WorkerRecord:
    fields = {
        "session": f"session-of-{name}",
        "machine": f"machine-of-{name}",
        "machine_class": "big",
        "description": {"cpu": "fast"},
        "devices": (),
        "cpus": (0, 1),
        "projects": {"demo": "/srv/demo"},
        "registered_at": NOW,
        "seen_at": NOW,
        **values,
    }
    return WorkerRecord(worker_id=name, **fields)


def a_request(**values: object) -> JobRequest:
    return JobRequest(**{"study": "train-{id}", "project": "demo", "script": "train.py", **values})


class QueueContract:
    """Behaviour that does not depend on the database."""

    @pytest.fixture
    def queue(self, url: str) -> Iterator[JobQueue]:
        with JobQueue.open(url) as queue:
            yield queue

    def submitted(self, queue: JobQueue, **values: object) -> JobRecord:
        return queue.submit(a_request(**values), now=NOW)[0]

    def leased(
        self, queue: JobQueue, name: str, seconds: float = 0.0, **values: object
    ) -> tuple[LeaseRecord, JobRecord] | None:
        """What the worker gets, after it has registered."""
        worker = a_worker(name, **values)
        queue.register(replace(worker, seen_at=at(seconds)))
        return queue.grant(name, worker.session, now=at(seconds), alive_s=ALIVE_S)

    def held(self, queue: JobQueue, name: str, seconds: float = 0.0, **values: object) -> tuple[LeaseRecord, JobRecord]:
        granted = self.leased(queue, name, seconds, **values)
        assert granted is not None
        return granted

    def end(self, queue: JobQueue, lease: LeaseRecord, end: LeaseEnd, seconds: float = 1.0) -> bool:
        return queue.complete(lease.lease_id, lease.fence, end, now=at(seconds), alive_s=ALIVE_S)

    def beat(self, queue: JobQueue, lease: LeaseRecord, *, now: datetime = NOW, **values: Any) -> tuple[Order, int]:
        return queue.heartbeat(Heartbeat(lease_id=lease.lease_id, fence=lease.fence, **values), now=now)

    def names_of(self, queue: JobQueue, job: JobRecord) -> list[str]:
        return [text for _, text in queue.events(job.number)]

    # Jobs

    def test_a_job_comes_back_as_it_was_submitted(self, queue: JobQueue) -> None:
        request = a_request(args=("--epochs", "5", "Größe"), options={"trials": 4, "set": {"a": "1,2"}}, machines=2)
        job, is_new = queue.submit(request, now=NOW)
        assert is_new
        assert queue.job(job.job_id) == job
        assert job.request == replace(request, study=f"train-{job.job_id}")
        assert (job.status, job.created_at, job.number) == (JobStatus.QUEUED, NOW, 1)

    def test_an_unknown_job_is_named(self, queue: JobQueue) -> None:
        with pytest.raises(StudyNotFoundError, match="no job 'nothing'"):
            queue.job("nothing")

    def test_a_repeated_key_gives_the_first_job_and_no_second(self, queue: JobQueue) -> None:
        first, _ = queue.submit(a_request(), now=NOW, key="once", digest="d")
        again, is_new = queue.submit(a_request(), now=NOW, key="once", digest="d")
        assert (again.job_id, is_new) == (first.job_id, False)
        assert len(queue.jobs()) == 1

    def test_a_key_of_another_request_is_refused(self, queue: JobQueue) -> None:
        queue.submit(a_request(), now=NOW, key="once", digest="d")
        with pytest.raises(StudyExistsError, match="another request"):
            queue.submit(a_request(script="b.py"), now=NOW, key="once", digest="e")

    def test_threads_with_one_key_make_one_job(self, queue: JobQueue) -> None:
        ids: list[str] = []
        threads = [
            threading.Thread(
                target=lambda: ids.append(queue.submit(a_request(), now=NOW, key="k", digest="d")[0].job_id)
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ids) == 8
        assert len(set(ids)) == 1

    def test_two_jobs_do_not_share_a_study(self, queue: JobQueue) -> None:
        self.submitted(queue, study="photos")
        with pytest.raises(StudyExistsError, match="has the study 'photos' already"):
            self.submitted(queue, study="photos")

    def test_jobs_are_listed_newest_first_in_pages(self, queue: JobQueue) -> None:
        made = [self.submitted(queue) for _ in range(5)]
        page = queue.jobs(limit=2)
        rest = queue.jobs(before=page[-1].number)
        assert [job.job_id for job in (*page, *rest)] == [job.job_id for job in reversed(made)]
        queue.want(made[0].job_id, Wish.CANCEL, now=NOW)
        assert [job.job_id for job in queue.jobs(statuses=[JobStatus.CANCELLED])] == [made[0].job_id]
        assert queue.num_jobs() == {JobStatus.CANCELLED: 1, JobStatus.QUEUED: 4}

    def test_what_is_wanted_of_a_waiting_job_happens_at_once(self, queue: JobQueue) -> None:
        for wish, status in ((Wish.PAUSE, "paused"), (Wish.STOP, "stopped"), (Wish.CANCEL, "cancelled")):
            job = self.submitted(queue)
            assert queue.want(job.job_id, wish, now=NOW).status == status
            assert queue.want(job.job_id, wish, now=NOW).status == status

    def test_a_paused_and_a_stopped_job_go_on_and_others_do_not(self, queue: JobQueue) -> None:
        for wish in (Wish.PAUSE, Wish.STOP):
            job = self.submitted(queue)
            queue.want(job.job_id, wish, now=NOW)
            assert queue.resume(job.job_id, now=NOW).status is JobStatus.QUEUED
        queue.want(job.job_id, Wish.CANCEL, now=NOW)
        with pytest.raises(StudyExistsError, match="only a paused or stopped job"):
            queue.resume(job.job_id, now=NOW)
        with pytest.raises(StudyExistsError, match="cannot be stopped"):
            queue.want(job.job_id, Wish.STOP, now=NOW)

    # Leases

    def test_the_oldest_job_is_leased_first(self, queue: JobQueue) -> None:
        first, second = self.submitted(queue), self.submitted(queue)
        assert self.held(queue, "a")[1].job_id == first.job_id
        assert self.held(queue, "b")[1].job_id == second.job_id
        assert self.leased(queue, "c") is None
        assert queue.job(first.job_id).status is JobStatus.RUNNING

    def test_a_worker_that_asks_again_gets_the_same_lease(self, queue: JobQueue) -> None:
        self.submitted(queue)
        self.submitted(queue)
        assert self.held(queue, "a") == self.held(queue, "a")

    def test_a_restarted_worker_keeps_its_lease_under_a_new_fence(self, queue: JobQueue) -> None:
        self.submitted(queue)
        old, job = self.held(queue, "a")
        new, same = self.held(queue, "a", session="the-second-process")
        assert (new.lease_id, same.number) == (old.lease_id, job.number)
        assert new.fence > old.fence
        with pytest.raises(LeaseLostError):
            self.beat(queue, old, now=NOW)
        with pytest.raises(StudyExistsError, match="started again"):
            queue.grant("a", "session-of-a", now=NOW, alive_s=ALIVE_S)

    def test_threads_never_lease_a_job_twice(self, queue: JobQueue) -> None:
        for _ in range(3):
            self.submitted(queue)
        found: list[tuple[LeaseRecord, JobRecord] | None] = []
        names = [f"w{number}" for number in range(8)]
        for name in names:
            queue.register(a_worker(name))
        threads = [
            threading.Thread(
                target=lambda name=name: found.append(queue.grant(name, f"session-of-{name}", now=NOW, alive_s=ALIVE_S))
            )
            for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        granted = [each[1].number for each in found if each is not None]
        assert sorted(granted) == [1, 2, 3]
        assert len(found) == 8

    def test_a_worker_without_the_project_gets_nothing(self, queue: JobQueue) -> None:
        self.submitted(queue)
        assert self.leased(queue, "a", projects={"other": "/srv/other"}) is None

    def test_a_job_for_cuda_waits_for_a_device(self, queue: JobQueue) -> None:
        self.submitted(queue, options={"device": "cuda"})
        assert self.leased(queue, "a") is None
        assert self.leased(queue, "b", devices=("GPU-1",)) is not None

    def test_a_job_goes_on_in_its_class_and_folder_only(self, queue: JobQueue) -> None:
        self.submitted(queue)
        lease, _ = self.held(queue, "a")
        self.end(queue, lease, STOPPED)
        assert self.leased(queue, "b", machine_class="small") is None
        assert self.leased(queue, "c", projects={"demo": "/elsewhere"}) is None
        assert self.leased(queue, "d") is not None

    def test_slots_that_share_cores_or_devices_work_one_at_a_time(self, queue: JobQueue) -> None:
        for _ in range(3):
            self.submitted(queue)
        of_machine = {"machine": "m", "cpus": (0, 1), "devices": ("GPU-0",)}
        first, _ = self.held(queue, "a", **of_machine)
        assert self.leased(queue, "same-cores", **{**of_machine, "devices": ("GPU-1",)}) is None
        assert self.leased(queue, "same-device", **{**of_machine, "cpus": (2, 3)}) is None
        assert self.leased(queue, "apart", **{**of_machine, "cpus": (4, 5), "devices": ("GPU-2",)}) is not None
        self.end(queue, first, DONE)
        assert self.leased(queue, "same-cores", **{**of_machine, "devices": ("GPU-1",)}) is not None

    def test_a_drained_worker_ends_its_search_and_gets_no_other(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        lease, _ = self.held(queue, "a")
        queue.set_worker_status("a", WorkerStatus.DRAINING)
        assert self.beat(queue, lease, now=NOW)[0] is Order.STOP
        assert self.end(queue, lease, STOPPED)
        assert queue.job(job.job_id).status is JobStatus.QUEUED
        assert queue.grant("a", lease.session, now=NOW, alive_s=ALIVE_S) is None
        queue.set_worker_status("a", WorkerStatus.READY)
        assert queue.grant("a", lease.session, now=NOW, alive_s=ALIVE_S) is not None

    @pytest.mark.parametrize(
        ("wish", "order", "status"),
        [
            (Wish.PAUSE, Order.STOP, JobStatus.PAUSED),
            (Wish.STOP, Order.STOP, JobStatus.STOPPED),
            (Wish.CANCEL, Order.CANCEL, JobStatus.CANCELLED),
        ],
    )
    def test_what_is_wanted_of_a_running_job_reaches_the_worker(
        self, queue: JobQueue, wish: Wish, order: Order, status: JobStatus
    ) -> None:
        job = self.submitted(queue)
        lease, _ = self.held(queue, "a")
        assert self.beat(queue, lease, now=NOW)[0] is Order.CONTINUE
        assert queue.want(job.job_id, wish, now=NOW).status is JobStatus.RUNNING
        assert self.beat(queue, lease, now=NOW)[0] is order
        self.end(queue, lease, replace(STOPPED, document={"status": "interrupted"}))
        ended = queue.job(job.job_id)
        assert (ended.status, ended.wanted, ended.document) == (status, Wish.NOTHING, {"status": "interrupted"})

    def test_the_end_of_a_search_is_kept_whole(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        lease, _ = self.held(queue, "a")
        assert self.end(queue, lease, DONE, 7.0)
        ended = queue.job(job.job_id)
        assert (ended.status, ended.exit_code, ended.document, ended.config, ended.finished_at) == (
            JobStatus.DONE,
            0,
            DONE.document,
            DONE.config,
            at(7.0),
        )
        assert queue.config_of(ended.study) == DONE.config

    def test_a_repeated_end_counts_once(self, queue: JobQueue) -> None:
        self.submitted(queue)
        lease, _ = self.held(queue, "a")
        assert self.end(queue, lease, DONE)
        assert self.end(queue, lease, DONE)
        assert queue.late_results() == ()

    def test_a_late_end_is_kept_as_evidence_and_not_counted(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        old, _ = self.held(queue, "a")
        queue.expire(seen_before=at(1), now=at(40))
        new, _ = self.held(queue, "b", 41)
        assert not self.end(queue, old, DONE, 50)
        assert not self.end(queue, old, DONE, 51)
        assert queue.job(job.job_id).status is JobStatus.RUNNING
        ((lease_id, fence, document),) = queue.late_results()
        assert (lease_id, fence, document["document"]) == (old.lease_id, old.fence, DONE.document)
        assert self.end(queue, new, replace(DONE, config="schema: 2\n"), 60)
        assert queue.job(job.job_id).config == "schema: 2\n"

    def test_a_silent_worker_loses_its_lease_and_another_goes_on(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        old, _ = self.held(queue, "a")
        self.beat(queue, old, now=at(20))
        assert queue.expire(seen_before=at(10), now=at(40)) == 0
        assert queue.expire(seen_before=at(30), now=at(60)) == 1
        assert queue.job(job.job_id).status is JobStatus.QUEUED
        new, again = self.held(queue, "b", 61)
        assert again.job_id == job.job_id
        assert new.fence > old.fence
        with pytest.raises(LeaseLostError):
            self.beat(queue, old, now=at(62))

    def test_a_worker_that_was_only_away_goes_on_if_nobody_took_its_job(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        lease, _ = self.held(queue, "a")
        queue.expire(seen_before=at(1), now=at(40))
        assert self.beat(queue, lease, now=at(50))[0] is Order.CONTINUE
        assert queue.job(job.job_id).status is JobStatus.RUNNING
        assert self.end(queue, lease, DONE, 60)
        assert queue.job(job.job_id).status is JobStatus.DONE

    def test_a_job_that_loses_every_worker_fails_in_the_end(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        for number in range(10):
            self.held(queue, "a", 10 * number)
            queue.expire(seen_before=at(10 * number + 1), now=at(10 * number + 2))
        ended = queue.job(job.job_id)
        assert ended.status is JobStatus.FAILED
        assert "lost 10 times" in ended.message

    # Failures

    def test_a_failure_is_tried_on_another_machine_of_the_class(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        queue.register(a_worker("b"))
        lease, _ = self.held(queue, "a")
        self.end(queue, lease, FAILED)
        assert queue.job(job.job_id).status is JobStatus.QUEUED
        assert self.leased(queue, "a", 2) is None
        second, _ = self.held(queue, "b", 2)
        self.end(queue, second, replace(FAILED, message="it crashed there too"))
        ended = queue.job(job.job_id)
        assert (ended.status, ended.exit_code, ended.message) == (JobStatus.FAILED, 4, "it crashed there too")

    def test_a_failure_without_another_machine_is_final(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        queue.register(a_worker("small", machine_class="small"))
        queue.register(a_worker("gone", seen_at=at(-1000)))
        lease, _ = self.held(queue, "a")
        self.end(queue, lease, FAILED)
        assert queue.job(job.job_id).status is JobStatus.FAILED

    def test_a_failure_of_the_job_itself_is_not_tried_again(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        queue.register(a_worker("b"))
        lease, _ = self.held(queue, "a")
        self.end(queue, lease, replace(FAILED, is_repeatable=False))
        assert queue.job(job.job_id).status is JobStatus.FAILED

    def test_a_stored_failure_is_tried_under_another_study(self, queue: JobQueue) -> None:
        job = self.submitted(queue, study="photos")
        queue.register(a_worker("b"))
        lease, _ = self.held(queue, "a")
        self.end(queue, lease, replace(FAILED, document={"status": "all_failed"}))
        assert queue.job(job.job_id).study == "photos-again"

    def test_a_failure_is_tried_again_where_another_machine_has_the_project(self, queue: JobQueue) -> None:
        elsewhere = {"projects": {"demo": "/mnt/demo"}}
        begun, stored = self.submitted(queue), self.submitted(queue, study="photos")
        queue.register(a_worker("b", **elsewhere))
        lease, _ = self.held(queue, "a")
        self.end(queue, lease, FAILED)
        # A begun study goes on in the same folder alone, which the other machine does not have.
        assert queue.job(begun.job_id).status is JobStatus.FAILED
        lease, _ = self.held(queue, "a", 2)
        self.end(queue, lease, replace(FAILED, document={"status": "all_failed"}), 3)
        assert self.leased(queue, "a", 4) is None
        second, job = self.held(queue, "b", 4, **elsewhere)
        assert (job.job_id, job.study, job.folder) == (stored.job_id, "photos-again", "/mnt/demo")
        self.end(queue, second, FAILED, 5)
        assert queue.job(stored.job_id).status is JobStatus.FAILED

    def test_three_failures_that_others_do_not_share_quarantine_a_worker(self, queue: JobQueue) -> None:
        for number in range(3):
            self.submitted(queue)
            queue.register(a_worker("good", seen_at=at(number)))
            bad, _ = self.held(queue, "bad", number)
            self.end(queue, bad, FAILED, number)
            good, _ = self.held(queue, "good", number)
            self.end(queue, good, DONE, number)
            states = {worker.worker_id: worker for worker in queue.workers()}
            is_last = number == 2
            assert states["bad"].status is (WorkerStatus.QUARANTINED if is_last else WorkerStatus.READY)
        assert "3 failures in a row" in states["bad"].reason
        self.submitted(queue)
        assert self.leased(queue, "bad", 5, session="restarted-process") is None
        queue.set_worker_status("bad", WorkerStatus.READY)
        assert queue.grant("bad", "restarted-process", now=at(6), alive_s=ALIVE_S) is not None

    def test_failures_that_others_share_quarantine_nobody(self, queue: JobQueue) -> None:
        for number in range(4):
            self.submitted(queue)
            queue.register(a_worker("b", seen_at=at(number)))
            first, _ = self.held(queue, "a", number)
            self.end(queue, first, FAILED, number)
            second, _ = self.held(queue, "b", number)
            self.end(queue, second, FAILED, number)
        assert {worker.status for worker in queue.workers()} == {WorkerStatus.READY}

    def test_a_worker_under_suspicion_waits_for_the_answer_of_others(self, queue: JobQueue) -> None:
        for _ in range(5):
            self.submitted(queue)
        queue.register(a_worker("good"))
        for number in range(3):
            lease, _ = self.held(queue, "bad", number)
            self.end(queue, lease, FAILED, number)
        assert self.leased(queue, "bad", 4) is None
        good, _ = self.held(queue, "good", 4)
        self.end(queue, good, FAILED, 5)
        assert self.leased(queue, "bad", 6) is not None

    # Several machines

    def test_a_config_that_comes_after_the_end_is_kept(self, queue: JobQueue) -> None:
        job = self.submitted(queue, machines=2)
        first, _ = self.held(queue, "a")
        self.beat(queue, first, now=NOW, new_events=(PROBED,))
        second, _ = self.held(queue, "b")
        # The machine with the config may end later than a machine that reads the result in the database.
        assert self.end(queue, second, replace(DONE, config=None))
        assert self.end(queue, first, DONE, 2)
        ended = queue.job(job.job_id)
        assert (ended.status, ended.config) == (JobStatus.DONE, DONE.config)

    def test_a_study_is_spread_over_machines_of_one_class(self, queue: JobQueue) -> None:
        job = self.submitted(queue, machines=2)
        first, _ = self.held(queue, "a")
        assert self.leased(queue, "b") is None, "before the probe there is nothing to share"
        self.beat(queue, first, now=NOW, new_events=(PROBED,))
        assert self.leased(queue, "c", machine_class="small") is None
        assert self.leased(queue, "a2", machine="machine-of-a", cpus=(5,)) is None
        second, same = self.held(queue, "b")
        assert same.job_id == job.job_id
        assert self.leased(queue, "d") is None
        self.end(queue, second, replace(STOPPED), 2)
        assert queue.job(job.job_id).status is JobStatus.RUNNING
        third, _ = self.held(queue, "d", 3)
        self.end(queue, first, DONE, 4)
        assert queue.job(job.job_id).status is JobStatus.DONE
        assert self.end(queue, third, DONE, 5)
        assert queue.job(job.job_id).finished_at == at(4)

    def test_a_failure_of_one_machine_leaves_the_study_to_the_others(self, queue: JobQueue) -> None:
        job = self.submitted(queue, machines=2)
        first, _ = self.held(queue, "a")
        self.beat(queue, first, now=NOW, new_events=(PROBED,))
        second, _ = self.held(queue, "b")
        self.end(queue, second, FAILED)
        assert queue.job(job.job_id).status is JobStatus.RUNNING
        assert self.leased(queue, "b", 2) is None
        queue.expire(seen_before=at(5), now=at(40))
        assert queue.job(job.job_id).status is JobStatus.QUEUED

    # Events

    def test_events_are_kept_in_order_and_once(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        lease, _ = self.held(queue, "a")
        num_before = len(queue.events(job.number))
        beat = {"now": NOW, "new_events": ('{"event":"a"}', '{"event":"b"}')}
        assert self.beat(queue, lease, first_event=0, **beat)[1] == 2
        assert self.beat(queue, lease, first_event=0, **beat)[1] == 2
        more = ('{"event":"b"}', '{"event":"c"}')
        assert self.beat(queue, lease, now=NOW, first_event=1, new_events=more)[1] == 3
        found = queue.events(job.number, after=num_before)
        assert [text for _, text in found] == ['{"event":"a"}', '{"event":"b"}', '{"event":"c"}']
        assert [event_id for event_id, _ in found] == list(range(num_before + 1, num_before + 4))
        assert queue.job(job.job_id).num_events == num_before + 3

    def test_heartbeats_of_many_workers_are_answered_one_by_one(self, queue: JobQueue) -> None:
        jobs = [self.submitted(queue) for _ in range(3)]
        held = [self.held(queue, name)[0] for name in ("a", "b", "c")]
        queue.want(jobs[1].job_id, Wish.CANCEL, now=NOW)
        beats = [Heartbeat(lease_id=lease.lease_id, fence=lease.fence, new_events=(PROBED,)) for lease in held]
        lost = replace(beats[0], fence=0)
        answers = queue.heartbeats([beats[2], lost, beats[1], replace(lost, lease_id="no"), beats[0]], now=NOW)
        assert answers[0] == answers[4] == (Order.CONTINUE, 1)
        assert answers[2] == (Order.CANCEL, 1)
        assert [type(answers[index]) for index in (1, 3)] == [LeaseLostError, StudyNotFoundError]

    def test_events_after_a_gap_are_not_taken(self, queue: JobQueue) -> None:
        self.submitted(queue)
        lease, _ = self.held(queue, "a")
        beat = self.beat(queue, lease, now=NOW, first_event=5, new_events=('{"event":"f"}',))
        assert beat == (Order.CONTINUE, 0)

    def test_every_change_of_the_state_is_an_event(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        lease, _ = self.held(queue, "a")
        queue.want(job.job_id, Wish.PAUSE, now=NOW)
        self.end(queue, lease, STOPPED)
        queue.resume(job.job_id, now=NOW)
        states = [text.split('"status":"')[1].split('"')[0] for text in self.names_of(queue, job)]
        assert states == ["queued", "running", "running", "paused", "queued"]

    def test_the_latest_progress_is_kept_without_an_event(self, queue: JobQueue) -> None:
        job = self.submitted(queue)
        lease, _ = self.held(queue, "a")
        before = queue.job(job.job_id).num_events
        for number in range(3):
            self.beat(queue, lease, now=NOW, progress=f'{{"n":{number}}}')
        assert queue.heads([job.number]) == {job.number: (before, "running", '{"n":2}')}
        assert queue.job(job.job_id).progress == {"n": 2}

    # The database

    def test_a_queue_survives_its_server(self, url: str) -> None:
        with JobQueue.open(url) as queue:
            job = self.submitted(queue)
            lease, _ = self.held(queue, "a")
        with JobQueue.open(url) as queue:
            assert queue.job(job.job_id).status is JobStatus.RUNNING
            assert self.end(queue, lease, DONE)

    def test_two_servers_see_the_changes_of_each_other(self, url: str) -> None:
        with JobQueue.open(url) as here, JobQueue.open(url) as there:
            before = there.num_changes()
            job = self.submitted(here)
            assert there.num_changes() > before
            assert there.job(job.job_id) == here.job(job.job_id)

    def test_servers_may_open_an_empty_database_at_the_same_time(self, url: str) -> None:
        faults: list[BaseException] = []

        def open_and_close() -> None:
            try:
                JobQueue.open(url).close()
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=open_and_close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []

    def test_studies_and_queue_live_in_one_database(self, url: str) -> None:
        with JobQueue.open(url) as queue, Repository.open(url) as repository:
            self.submitted(queue)
            assert repository.names() == []
