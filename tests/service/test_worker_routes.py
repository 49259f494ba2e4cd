"""The routes of workers, leases and events, with workers that run nothing."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.client import ServerError
from tests.service.pretend_workers import PretendWorker
from tests.service.servers import Service, service, wait_until

PROBED = {"event": "probe_finished", "schema": 1}
CONFIG = "schema: 1\n"


@pytest.fixture
def project() -> str:
    """A project of one test, so that no worker of another test takes its jobs."""
    return f"p-{uuid.uuid4().hex[:8]}"


def worker_of(served: Service, project: str, name: str = "", **values: Any) -> PretendWorker:
    return PretendWorker(served.api, name, projects={project: f"/srv/{project}"}, **values)


def submitted(served: Service, project: str, **values: Any) -> str:
    return served.client.submit(project, "train.py", **values).id


def test_a_waiting_worker_gets_a_job_as_soon_as_it_is_submitted(served: Service, project: str) -> None:
    worker = worker_of(served, project)
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(worker.lease(wait_s=30)))
    waiting.start()
    wait_until(lambda: b"autotune_workers_waiting 1" in served.api.request("GET", "/metrics")[1], "a waiting worker")
    job_id = submitted(served, project)
    waiting.join(30)
    assert answers[0]["job"]["id"] == job_id
    assert answers[0]["storage"].startswith("sqlite:///")
    assert served.client.job(job_id).document["workers"] == [worker.name]


def test_a_worker_that_asks_again_gets_the_same_lease(served: Service, project: str) -> None:
    worker = worker_of(served, project)
    submitted(served, project)
    submitted(served, project)
    first = worker.lease()
    assert worker.lease() == first


def test_a_wait_without_work_ends_without_a_lease(served: Service, project: str) -> None:
    assert worker_of(served, project).lease(wait_s=0.1) == {}


def test_a_job_runs_from_the_lease_to_the_config(served: Service, project: str) -> None:
    worker = worker_of(served, project)
    job_id = submitted(served, project)
    worker.lease()
    assert worker.beat(PROBED, progress={"event": "trial_progress", "n": 1})["order"] == "continue"
    assert served.client.job(job_id).document["progress"] == {"event": "trial_progress", "n": 1}
    assert worker.complete(document={"status": "improved"}, config=CONFIG)["is_counted"] is True
    job = served.client.job(job_id)
    assert (job.status, job.document["result"], job.document["has_config"]) == ("done", {"status": "improved"}, True)


@pytest.mark.parametrize(
    ("verb", "order", "status"),
    [("pause", "stop", "paused"), ("stop", "stop", "stopped"), ("cancel", "cancel", "cancelled")],
)
def test_an_order_reaches_the_worker_by_its_heartbeat(
    served: Service, project: str, verb: str, order: str, status: str
) -> None:
    worker = worker_of(served, project)
    job_id = submitted(served, project)
    worker.lease()
    asked = getattr(served.client, verb)(job_id)
    assert (asked.status, asked.document["wanted"]) == ("running", verb)
    assert worker.beat()["order"] == order
    worker.complete("stopped", exit_code=130)
    assert served.client.job(job_id).status == status


def test_a_drained_worker_is_told_to_stop_and_another_goes_on(served: Service, project: str) -> None:
    first, second = worker_of(served, project), worker_of(served, project)
    job_id = submitted(served, project)
    first.lease()
    assert served.client.drain(first.name)["status"] == "draining"
    assert first.beat()["order"] == "stop"
    first.complete("stopped", exit_code=130)
    assert first.lease() == {}
    assert second.lease()["job"]["id"] == job_id
    assert served.client.enable(first.name)["status"] == "ready"


def test_an_old_fence_is_refused_and_its_result_kept_as_evidence(served: Service, project: str) -> None:
    worker = worker_of(served, project)
    job_id = submitted(served, project)
    old = dict(worker.lease())
    again = worker_of(served, project, worker.name)
    again.lease()
    assert again.lease_document["lease"] == old["lease"]
    with pytest.raises(ServerError) as caught:
        worker.beat()
    assert (caught.value.status, caught.value.code) == (409, "lease_lost")
    num_late = late_results(served)
    assert worker.complete(document={"status": "improved"})["is_counted"] is False
    assert late_results(served) == num_late + 1
    assert served.client.job(job_id).status == "running"
    assert again.complete()["is_counted"] is True


def late_results(served: Service) -> int:
    lines = served.api.request("GET", "/metrics")[1].decode().splitlines()
    return int(next(line for line in lines if line.startswith("autotune_late_results ")).split()[1])


def test_workers_are_listed_with_class_job_and_projects(served: Service, project: str) -> None:
    worker = worker_of(served, project, devices=["GPU-7"], description={"cpu": "fast"})
    job_id = submitted(served, project)
    worker.lease()
    listed = {entry["id"]: entry for entry in served.client.workers()}
    entry = listed[worker.name]
    assert (entry["job"], entry["class"], entry["projects"], entry["is_alive"], entry["status"]) == (
        job_id,
        "big",
        [project],
        True,
        "ready",
    )
    assert (entry["devices"], entry["description"]) == (["GPU-7"], {"cpu": "fast"})
    assert project in served.client.projects()


def test_an_unknown_worker_and_lease_are_named(served: Service) -> None:
    for path, body in (
        ("/v1/workers/nobody:lease", {"session": "12345678"}),
        ("/v1/workers/nobody:drain", {}),
        ("/v1/leases/nothing:heartbeat", {"fence": 1}),
        ("/v1/leases/nothing:complete", {"fence": 1, "state": "done"}),
    ):
        with pytest.raises(ServerError) as caught:
            served.api.json("POST", path, body)
        assert (caught.value.status, caught.value.code) == (404, "not_found")


@pytest.mark.parametrize("events", [[{"event": "x" * (2 << 20)}], [{"n": float("nan")}], [{"event": 1}], ["text"]])
def test_an_event_that_cannot_be_kept_is_refused(served: Service, project: str, events: list[Any]) -> None:
    worker = worker_of(served, project)
    submitted(served, project)
    worker.lease()
    with pytest.raises(ServerError) as caught:
        worker.beat(*events)
    assert 400 <= caught.value.status < 500
    assert worker.beat()["num_events"] == 0


# Events


def test_a_watcher_gets_every_event_in_order_and_the_end(served: Service, project: str) -> None:
    worker = worker_of(served, project)
    job_id = submitted(served, project)
    seen: list[tuple[int | None, str]] = []
    watching = threading.Thread(target=lambda: seen.extend((e.id, e.name) for e in served.client.events(job_id)))
    watching.start()
    worker.lease()
    for number in range(3):
        worker.beat({"event": "trial_finished", "number": number}, first=number)
    worker.complete()
    watching.join(30)
    stored = [(number, name) for number, name in seen if number is not None]
    names = ["job", "job", "trial_finished", "trial_finished", "trial_finished", "job"]
    assert stored == list(enumerate(names, start=1))


def test_a_watcher_goes_on_after_its_last_event(served: Service, project: str) -> None:
    worker = worker_of(served, project)
    job_id = submitted(served, project)
    worker.lease()
    worker.beat(*({"event": "trial_finished", "number": number} for number in range(700)))
    worker.complete()
    whole = [event.id for event in served.client.events(job_id)]
    assert whole == list(range(1, 704))
    assert [event.id for event in served.client.events(job_id, after=700)] == [701, 702, 703]
    assert list(served.client.events(job_id, after=703)) == []


def test_an_event_is_the_line_of_the_search(served: Service, project: str) -> None:
    worker = worker_of(served, project)
    job_id = submitted(served, project)
    worker.lease()
    line = {"schema": 1, "event": "notice", "at": "2026-11-22T12:00:00.000+00:00", "message": "Größe <script>\n2"}
    worker.beat(line)
    worker.complete()
    assert [dict(event.document) for event in served.client.events(job_id) if event.name == "notice"] == [line]


def test_a_paused_job_keeps_its_watchers(served: Service, project: str) -> None:
    worker_of(served, project)
    job_id = submitted(served, project)
    served.client.pause(job_id)
    events = served.client.events(job_id)
    assert [next(events).document["status"] for _ in range(2)] == ["queued", "paused"]
    served.client.resume(job_id)
    assert next(events).document["status"] == "queued"
    served.client.cancel(job_id)
    assert [event.document["status"] for event in events] == ["cancelled"]


# Servers that come and go


def test_a_server_ends_at_once_although_workers_and_watchers_wait(tmp_path: Path) -> None:
    with service(tmp_path, {}) as running:
        server = running.serve("--no-worker")
        worker = PretendWorker(running.api)
        job_id = running.client.submit("demo", "train.py").id
        running.client.pause(job_id)
        waiting = [
            threading.Thread(target=_quietly, args=(lambda: worker.lease(wait_s=30),)),
            threading.Thread(target=_quietly, args=(lambda: next(iter(running.client.events(job_id, after=2))),)),
        ]
        for thread in waiting:
            thread.daemon = True
            thread.start()
        wait_until(lambda: b"autotune_watchers 1" in running.api.request("GET", "/metrics")[1], "a watcher")
        assert server.end() == 0, server.talk()
        assert "Traceback" not in server.talk()


def _quietly(ask: Any) -> None:
    try:
        ask()
    except Exception:
        return


def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    with service(tmp_path, {}) as running:
        first = running.serve("--no-worker")
        worker = PretendWorker(running.api)
        job_id = running.client.submit("demo", "train.py").id
        worker.lease()
        worker.beat({"event": "trial_finished", "number": 0})
        first.end(9)
        running.serve("--no-worker")
        assert worker.beat({"event": "trial_finished", "number": 1}, first=1)["order"] == "continue"
        assert worker.complete()["is_counted"] is True
        numbers = [event.document.get("number") for event in running.client.events(job_id)]
        assert [number for number in numbers if number is not None] == [0, 1]


def test_a_lost_worker_is_replaced_but_not_for_the_servers_own_absence(tmp_path: Path) -> None:
    with service(tmp_path, {}) as running:
        running.serve("--no-worker", "--lease-time=2s")
        first, second = PretendWorker(running.api), PretendWorker(running.api)
        job_id = running.client.submit("demo", "train.py").id
        old = first.lease()
        assert second.lease(wait_s=20)["job"]["id"] == job_id
        assert second.lease_document["fence"] > old["fence"]
        attempts = running.client.job(job_id).document["attempts"]
        assert [attempt["state"] for attempt in attempts] == ["lost", "held"]


def test_servers_on_one_database_share_queue_workers_and_events(postgresql_url: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with service(tmp_path / "a", {}, postgresql_url) as here, service(tmp_path / "b", {}, postgresql_url) as there:
        here.serve("--no-worker")
        there.serve("--no-worker")
        worker = PretendWorker(there.api)
        answers: list[dict[str, Any]] = []
        waiting = threading.Thread(target=lambda: answers.append(worker.lease(wait_s=30)))
        waiting.start()
        job_id = here.client.submit("demo", "train.py").id
        waiting.join(30)
        assert answers[0]["job"]["id"] == job_id
        events = here.client.events(job_id)
        assert [next(events).document["status"] for _ in range(2)] == ["queued", "running"]
        here.client.stop(job_id)
        assert next(events).document["wanted"] == "stop"
        assert worker.beat({"event": "trial_finished", "number": 0})["order"] == "stop"
        worker.complete("stopped", exit_code=130)
        assert [event.name for event in events] == ["trial_finished", "job"]
        assert json.dumps(there.client.job(job_id).document) == json.dumps(here.client.job(job_id).document)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from tests.contract.private_servers import postgresql

    yield from postgresql()


@pytest.fixture
def postgresql_url(cluster: Any) -> str:
    return str(cluster.new_url())
