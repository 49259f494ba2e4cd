"""One study on several machines: processes that seem to be on machines of their own, on a private PostgreSQL."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from tests.contract.private_servers import postgresql
from tests.service.servers import Process, Service, service, wait_until

NUM_TRIALS = 12
OPTIONS = {"trials": NUM_TRIALS, "time": "10m"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    yield from postgresql()


@pytest.fixture
def team(root: Path, cluster: Any) -> Iterator[Service]:
    folder = root / "project"
    folder.mkdir()
    (folder / "train.py").write_text("import torch\n")
    with service(root, {"demo": folder}, cluster.new_url()) as running:
        running.serve("--no-worker", "--lease-time=4s")
        yield running


def on_machine(team: Service, name: str, trial_s: str = "0.2") -> Process:
    variables = {"TEST_MACHINE": name, "TEST_TRIAL_S": trial_s, "TEST_DRAIN_S": "5"}
    return team.worker(name, variables={**variables, "XDG_STATE_HOME": str(team.root / f"state-of-{name}")})


def check_counted_once(team: Service, study: str, num_trials: int) -> None:
    """Every trial is stored once, finished, and told to Optuna; no settings were measured twice, and none too many."""
    with Repository.open(resolve_url(team.storage, team.root)) as repository:
        trials = repository.trials(study)
        assert [trial.number for trial in trials if not trial.optuna_told] == []
        finished = [trial for trial in trials if trial.result.outcome.is_finished]
        assert len({trial.settings for trial in finished}) == len(finished) == num_trials
        assert repository.study(study).status == "improved"


def test_two_workers_share_one_study_and_count_every_trial_once(team: Service) -> None:
    workers = [on_machine(team, name) for name in ("left", "right")]
    job = team.client.submit("demo", "train.py", options=OPTIONS, machines=2)
    both = wait_until(lambda: len(team.client.job(job.id).document["workers"]) == 2, "two workers")
    assert both
    done = team.until(job.id, "done")
    check_counted_once(team, job.study, NUM_TRIALS)
    wait_until(lambda: not team.client.job(job.id).document["workers"], "both leases ended")
    states = {(attempt["worker"], attempt["state"]) for attempt in team.client.job(job.id).document["attempts"]}
    assert states == {("left", "done"), ("right", "done")}, team.client.job(job.id).document["attempts"]
    assert team.client.config(job.study) and done.document["result"]["trials"]["total"] >= NUM_TRIALS
    assert [worker.end() for worker in workers] == [0, 0]


def test_a_killed_worker_is_replaced_on_another_machine(team: Service) -> None:
    left = on_machine(team, "left")
    job = team.client.submit("demo", "train.py", options=OPTIONS)
    team.until_event(job.id, "trial_finished")
    left.end(signal.SIGKILL)
    on_machine(team, "right")
    team.until(job.id, "done")
    check_counted_once(team, job.study, NUM_TRIALS)
    attempts = [(attempt["worker"], attempt["state"]) for attempt in team.client.job(job.id).document["attempts"]]
    assert attempts == [("left", "lost"), ("right", "done")]


def test_a_worker_told_to_end_hands_its_study_over(team: Service) -> None:
    left = on_machine(team, "left")
    job = team.client.submit("demo", "train.py", options=OPTIONS)
    team.until_event(job.id, "trial_finished")
    on_machine(team, "right")
    assert left.end() == 0, left.talk()
    team.until(job.id, "done")
    check_counted_once(team, job.study, NUM_TRIALS)
    attempts = [(attempt["worker"], attempt["state"]) for attempt in team.client.job(job.id).document["attempts"]]
    assert attempts == [("left", "stopped"), ("right", "done")]
