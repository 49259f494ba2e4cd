"""Whole searches by a real worker: of a script that only pretends to train, and with a function in place of trials."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.emit.tuned_config import read_config
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from tests.integration.search.pretend import Project
from tests.service.servers import Service, cli, service, wait_until

SHORT = {"trials": 2, "time": "10m"}
LONG = {"trials": 12, "time": "10m"}
IMAGINED = {"TEST_TRIAL_S": "0.1", "TEST_DRAIN_S": "5"}


@pytest.fixture
def project(root: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(root)
    for name, value in made.environment().items():
        if os.environ.get(name) != value and name != "AUTOTUNE_STORAGE":
            monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def running(root: Path, project: Project) -> Iterator[Service]:
    with service(root, {"demo": project.folder}, str(project.database)) as made:
        yield made


def finished(running: Service, study: str) -> dict[int, str]:
    """Outcomes of the finished trials of a study, by number."""
    with Repository.open(resolve_url(running.storage, running.root)) as repository:
        if study not in repository.names():
            return {}
        trials = [trial for trial in repository.trials(study) if trial.result.outcome.is_finished]
        return {trial.number: trial.result.outcome.value for trial in trials}


def test_a_job_is_searched_from_the_command_to_the_config(running: Service, project: Project) -> None:
    server = running.serve()
    submitted = cli(running, "submit", "train.py", "--trials=2", "--time=10m", "--watch", "--", "--epochs", "2")
    assert submitted.returncode == 0, submitted.stderr + running.all_talk()
    assert "trial 0" in submitted.stdout and "job done" in submitted.stdout
    job = running.client.jobs()[0]
    job = running.client.job(job.id)
    assert (job.status, job.document["exit_code"]) == ("done", 0)

    path = running.root / "fetched.yaml"
    path.write_text(running.client.config(job.study))
    assert read_config(path).provenance.study == job.study
    assert job.document["result"]["trials"]["total"] == 2 == len(finished(running, job.study))
    # Notices tell of this machine, such as how files are protected here.
    names = [event.name for event in running.client.events(job.id) if event.name != "notice"]
    assert names[:3] == ["job", "job", "search_started"] and names[-2:] == ["result", "job"]
    assert names.count("trial_finished") == 2

    variables = {**os.environ, "AUTOTUNE_STORAGE": str(project.database)}
    for words, address in ((("best", job.study), "/best"), (("studies", "show", job.study), "")):
        printed = project.run(*words, "--json", variables=variables)
        assert json.loads(printed[1]) == running.api.json("GET", f"/v1/studies/{job.study}{address}")
    _, listed, _ = project.run("studies", "list", "--json", variables=variables)
    entry = json.loads(listed)["studies"][0]
    assert {**entry, "age_s": 0} == {**running.client.studies()["studies"][0], "age_s": 0}
    assert "<html" in running.api.request("GET", f"/v1/studies/{job.study}/report")[1].decode()

    assert server.end() == 0, server.talk()
    assert project.processes_left() == [] and project.num_files_changed() == 0


def test_a_job_is_stopped_resumed_paused_and_cancelled(running: Service, project: Project) -> None:
    server = running.serve(variables={**IMAGINED, "TEST_TRIAL_S": "1"})  # The stop is to come before the last trial.
    client = running.client
    job = client.submit("demo", "train.py", options=LONG)
    running.until_event(job.id, "trial_finished")
    client.stop(job.id)
    stopped = running.until(job.id, "stopped")
    before = finished(running, job.study)
    assert before and stopped.document["result"]["status"] == "interrupted"
    assert client.resume(job.id).status == "queued"
    wait_until(lambda: len(finished(running, job.study)) > len(before), "a trial after the resume")
    client.pause(job.id)
    running.until(job.id, "paused")
    between = finished(running, job.study)
    assert before.items() <= between.items()
    client.resume(job.id)
    running.until(job.id, "running")
    client.cancel(job.id)
    running.until(job.id, "cancelled")
    assert server.end() == 0, server.talk()
    assert project.processes_left() == [] and project.num_files_changed() == 0


def test_a_script_that_fails_says_why(running: Service, project: Project) -> None:
    (project.folder / "broken.py").write_text("raise RuntimeError('no data here')\n")
    running.serve()
    job = running.client.submit("demo", "broken.py", options=SHORT)
    failed = running.until(job.id, "failed")
    assert failed.document["exit_code"] == 4
    assert "no data here" in failed.document["message"]
    watched = cli(running, "jobs", "watch", job.id)
    assert watched.returncode == 4


def test_the_end_of_the_server_ends_its_worker_and_a_restart_goes_on(running: Service, project: Project) -> None:
    server = running.serve(variables=IMAGINED)
    job = running.client.submit("demo", "train.py", options=LONG)
    running.until_event(job.id, "trial_finished")
    assert server.end() == 0, server.talk()
    assert project.processes_left() == []
    before = finished(running, job.study)
    running.serve(variables=IMAGINED)
    ended = running.until(job.id, "done")
    assert ended.document["result"]["trials"]["total"] == LONG["trials"]
    assert before.items() <= finished(running, job.study).items()


def test_a_killed_server_takes_its_worker_along_and_a_restart_goes_on(running: Service, project: Project) -> None:
    server = running.serve(variables=IMAGINED)
    job = running.client.submit("demo", "train.py", options=LONG)
    running.until_event(job.id, "trial_finished")
    server.end(signal.SIGKILL)
    wait_until(lambda: not project.processes(), "the end of all processes", 30.0)
    before = finished(running, job.study)
    running.serve(variables=IMAGINED)
    ended = running.until(job.id, "done")
    assert ended.document["result"]["trials"]["total"] == LONG["trials"]
    after = finished(running, job.study)
    assert before.items() <= after.items() and len(after) == LONG["trials"]
    assert len(ended.document["attempts"]) == 1, "the same worker has the same lease"


def test_a_second_worker_of_one_name_is_refused(running: Service, project: Project) -> None:
    running.serve("--no-worker")
    first = running.worker("one")
    wait_until(lambda: running.client.workers(), "a registered worker")
    second = running.worker("one")
    assert second.popen.wait(60) == 2
    assert "runs on this machine already" in second.talk() and "Traceback" not in second.talk()
    assert first.end() == 0
    assert "Traceback" not in first.talk()
