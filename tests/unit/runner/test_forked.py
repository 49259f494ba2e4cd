"""Which trials are forked, from which servers, and what one gets where none can be made."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.model.facts import ScriptFacts
from autotune.model.job import Mode, TrialJob, TrialPaths
from autotune.runner import forked
from autotune.runner.forked import MAX_SERVERS, ForkRunner, why_cold
from autotune.runner.prepared import BY_CALL
from autotune.runner.start import Start
from tests.unit.facts import script_facts
from tests.unit.runner.test_prepared import FACTS, FASTER, job


class FullDisk:
    """A workspace in which nothing can be made."""

    has_layers = True

    def new_trial(self) -> None:
        raise OSError(28, "No space left on device")


def test_without_room_for_a_server_a_trial_is_started_cold_with_the_reason() -> None:
    reasons: list[str] = []
    cold: Any = SimpleNamespace(workspace=FullDisk(), start=lambda job, start_reason: reasons.append(start_reason))
    with ForkRunner(cold, script_facts()) as runner:
        runner.start(job())
    assert reasons == ["no server of the imports can be started: [Errno 28] No space left on device"]


@pytest.mark.parametrize(
    ("changes", "facts", "reason"),
    [
        ({"mode": Mode.PROBE}, FACTS, "a probe sees the script as it is"),
        ({"world_size": 2}, FACTS, "several processes train together"),
        ({"command": ("torchrun", "train.py")}, FACTS, "torchrun is not a Python interpreter"),
        ({"command": ("python", "-O", "train.py")}, FACTS, "the interpreter is started with -O"),
        ({"command": ("python", "-u")}, FACTS, "the command names no script"),
        ({"command": ("python", "-m")}, FACTS, "the command names no script"),
        ({}, replace(FACTS, early_environment=("OMP_NUM_THREADS",)), "sets OMP_NUM_THREADS before it imports torch"),
        ({}, replace(FACTS, imported_after_freeze="torch"), "freezes its heap before it imports torch"),
    ],
)
def test_what_no_fork_can_be_is_known_beforehand(changes: dict[str, Any], facts: ScriptFacts, reason: str) -> None:
    assert reason in why_cold(job(**changes), facts)


@pytest.mark.parametrize(
    "command", [("python3.12", "train.py"), ("/bin/python", "-u", "train.py"), ("python", "-m", "a")]
)
def test_an_ordinary_script_may_be_forked(command: tuple[str, ...]) -> None:
    assert why_cold(job(command=command), FACTS) == ""


def test_where_processes_have_no_descriptors_none_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert why_cold(job(), FACTS) == "this system has no descriptors of processes"


class Servers:
    """Servers of imports that start nothing, in the order of their starts."""

    def __init__(self, folder: Path) -> None:
        self.started: list[SimpleNamespace] = []
        self.workspace: Any = SimpleNamespace(has_layers=False, new_trial=lambda: folder, remove_trial=lambda _: None)

    def start(self, **given: Any) -> SimpleNamespace:
        server = SimpleNamespace(
            environment=given["environment"], folder=given["folder"], pid=len(self.started), import_s=1.0, is_open=True
        )
        server.is_alive = lambda: server.is_open
        server.close = lambda: setattr(server, "is_open", False)
        self.started.append(server)
        return server

    def environment(self, job: TrialJob, _: TrialPaths) -> dict[str, str]:
        return {**dict(job.environment), "CUDA_VISIBLE_DEVICES": ",".join(job.devices)}

    def start_with(self, job: TrialJob, launch: object, start: Start) -> Start:
        return start


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Servers:
    made = Servers(tmp_path)
    monkeypatch.setattr(forked, "ForkServer", made.start)
    return made


def run_of(servers: Servers) -> ForkRunner:
    cold: Any = servers
    return ForkRunner(cold, FACTS, least_preparation_s=math.inf)


def test_trials_that_differ_in_what_an_import_reads_have_servers_of_their_own(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        job(environment=(("OMP_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "1"))),
        job(environment=(("OMP_WAIT_POLICY", "PASSIVE"),)),
        job(devices=("GPU-1",)),
        job(),
        job(FASTER),
    ]
    for name in BY_CALL:
        monkeypatch.delenv(name, raising=False)
    with run_of(servers) as runner:
        starts: list[Any] = [runner.start(each) for each in jobs]
    assert [start.server_pids for start in starts] == [(0,), (1,), (2,), (0,), (0,)]
    assert [start.server_s > 0 for start in starts] == [True, True, True, False, False]
    assert servers.started[1].environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert servers.started[2].environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert not any(name in server.environment for server in servers.started for name in BY_CALL)


def test_the_server_that_was_used_least_gives_way(servers: Servers) -> None:
    policies = ["a", "b", "c", "a", "d", "b"]
    with run_of(servers) as runner:
        pids = []
        for policy in policies:
            start: Any = runner.start(job(environment=(("OMP_WAIT_POLICY", policy),)))
            pids.append(start.server_pids[0])
            assert sum(server.is_open for server in servers.started) <= MAX_SERVERS
    assert pids == [0, 1, 2, 0, 3, 4]
    assert not any(server.is_open for server in servers.started)


def test_a_server_that_has_died_is_replaced(servers: Servers) -> None:
    with run_of(servers) as runner:
        starts: list[Any] = [runner.start(job())]
        servers.started[0].close()
        starts.append(runner.start(job()))
    assert [start.server_pids for start in starts] == [(0,), (1,)]
