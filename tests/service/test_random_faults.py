"""Random faults of a service on two machines: no trial lost, none counted twice, no process left.

TEST_FAULTS sets the number of faults.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from tests.contract.private_servers import PostgresqlCluster, postgresql
from tests.service.servers import Process, Service, service, wait_until
from tests.service.test_several_machines import check_counted_once, on_machine

NUM_FAULTS = int(os.environ.get("TEST_FAULTS", "50"))
NUM_TRIALS = 40
KINDS = ("worker killed", "worker drained", "server killed", "database restarted")
MACHINES = ("left", "right")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    yield from postgresql()


class Faults:
    """A server and two workers that are hurt and started again."""

    def __init__(self, team: Service, cluster: PostgresqlCluster) -> None:
        self.team, self.cluster = team, cluster
        self.server = self.serve()
        self.workers: dict[str, Process] = {name: on_machine(team, name) for name in MACHINES}

    def serve(self) -> Process:
        return self.team.serve("--no-worker", "--lease-time=5s")

    def happen(self, kind: str, generator: random.Random) -> None:
        name = generator.choice(MACHINES)
        if kind == "worker killed":
            self.workers[name].end(signal.SIGKILL)
        elif kind == "worker drained":
            # A worker that is still importing dies of the signal, before it has a lease.
            assert self.workers[name].end(signal.SIGTERM) in (0, -signal.SIGTERM), self.workers[name].talk()
        elif kind == "server killed":
            self.server.end(signal.SIGKILL)
            self.server = self.serve()
        else:
            self.cluster.stop(signal.SIGINT)
            self.cluster.start()
        if self.workers[name].popen.poll() is not None:
            self.workers[name] = on_machine(self.team, name)


def finished(team: Service, study: str) -> dict[int, Any]:
    with Repository.open(resolve_url(team.storage, team.root)) as repository:
        if study not in repository.names():
            return {}
        trials = [trial for trial in repository.trials(study) if trial.result.outcome.is_finished]
        return {trial.number: (trial.settings, trial.started_at) for trial in trials}


def marked(root: Path) -> list[int]:
    """Living processes that were started below the folder."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            variables = Path("/proc", entry, "environ").read_bytes() if entry.isdigit() else b""
        except OSError:
            continue
        if f"XDG_STATE_HOME={root}".encode() in variables:
            found.append(int(entry))
    return found


@pytest.mark.slow
def test_random_faults_lose_no_trial_and_leave_no_process(root: Path, cluster: PostgresqlCluster) -> None:
    generator = random.Random(7)
    (root / "project").mkdir()
    (root / "project" / "train.py").write_text("import torch\n")
    num_faults, lost = 0, []
    with service(root, {"demo": root / "project"}, cluster.new_url()) as team:
        faults = Faults(team, cluster)
        while num_faults < NUM_FAULTS:
            job = team.client.submit("demo", "train.py", options={"trials": NUM_TRIALS, "time": "30m"}, machines=2)
            team.until_event(job.id, "trial_started")
            while num_faults < NUM_FAULTS and team.client.job(job.id).status in ("queued", "running"):
                before = finished(team, job.study)
                faults.happen(KINDS[num_faults % len(KINDS)], generator)
                num_faults += 1
                now = finished(team, job.study)
                lost += [number for number, trial in before.items() if now.get(number) != trial]
                time.sleep(generator.uniform(0.0, 4.0))
            team.until(job.id, "done", limit_s=300)
            check_counted_once(team, job.study, NUM_TRIALS)
        for worker in faults.workers.values():
            assert worker.end() == 0, worker.talk()
        wait_until(lambda: not marked(root), "the end of all searches", 30.0)
    assert (lost, marked(root)) == ([], [])
