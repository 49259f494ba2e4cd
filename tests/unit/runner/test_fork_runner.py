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
from autotune.model.outcome import Outcome
from autotune.protocol.environment import BY_CALL
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.runner import fork_runner
from autotune.runner.fork_runner import MAX_SERVERS, ForkRunner, why_cold
from autotune.runner.fork_server import ForkServerError
from autotune.runner.runner import Start
from tests.unit.facts import script_facts
from tests.unit.runner.test_prelude_server import FACTS, FASTER, ended, job


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
        self.workspace: Any = SimpleNamespace(
            has_layers=False,
            new_trial=lambda: folder,
            remove_trial=lambda _: None,
            confinement=lambda _: None,
            mounts=lambda *_, **given: None,
            short=TrialPaths,
        )

    def start(self, **given: Any) -> SimpleNamespace:
        server = SimpleNamespace(
            environment=given["environment"],
            folder=Path(given["spec"].folder),
            pid=len(self.started),
            import_s=1.0,
            is_open=True,
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
    monkeypatch.setattr(fork_runner, "ForkServer", made.start)
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


class Prelude:
    """The script's beginning, run by now."""

    place, launch, pid = "train.py:9, where CUDA starts", "goes on", 99

    def __init__(self, job: TrialJob, *, prepared_s: float = 2.0, reason: str = "") -> None:
        self.command, self.prepared_s, self.reason = job.command, prepared_s, reason
        self.is_open = True

    def is_alive(self) -> bool:
        return self.is_open and not self.reason

    def why_not(self, job: TrialJob) -> str:
        return "its beginning asks for threads" if job.environment else ""

    def close(self) -> None:
        self.is_open = False


class Beginnings:
    """Those that were run, in order."""

    def __init__(self) -> None:
        self.run: list[Prelude] = []
        self.how: dict[str, Any] = {}

    def prepare(self, _: object, server: object, job: TrialJob) -> Prelude:
        self.run.append(Prelude(job, **self.how))
        return self.run[-1]


@pytest.fixture
def beginnings(monkeypatch: pytest.MonkeyPatch) -> Beginnings:
    made = Beginnings()
    monkeypatch.setattr(fork_runner, "Preparation", made.prepare)
    monkeypatch.setattr(fork_runner, "PreparingRun", lambda _, go_on: go_on())
    return made


def started(servers: Servers, *jobs: TrialJob, facts: ScriptFacts = FACTS) -> list[Any]:
    """How these trials start, one after the other."""
    cold: Any = servers
    with ForkRunner(cold, facts) as runner:
        return [runner.start(each) for each in jobs]


def test_trials_go_on_from_one_beginning_and_say_what_they_saved(servers: Servers, beginnings: Beginnings) -> None:
    starts = started(servers, job(), job(FASTER))
    assert [(start.kind, start.server_pids, start.saved_s) for start in starts] == [("prepared", (99, 0), 3.0)] * 2
    assert all("train.py:9, where CUDA starts" in start.reason for start in starts)
    assert [start.server_s > 0 for start in starts] == [True, False]
    (prelude,) = beginnings.run
    assert not prelude.is_open


@pytest.mark.parametrize(
    ("how", "reason"),
    [({"prepared_s": 0.1}, "takes 0.10 s"), ({"reason": "it keeps a socket open"}, "it keeps a socket open")],
)
def test_a_beginning_of_no_use_is_run_once_and_its_trials_are_forked_with_the_reason(
    servers: Servers, beginnings: Beginnings, how: dict[str, Any], reason: str
) -> None:
    beginnings.how = how
    starts = started(servers, job(), job(FASTER))
    assert [(start.kind, start.saved_s) for start in starts] == [("forked", 1.0)] * 2
    assert all(reason in start.reason for start in starts)
    assert len(beginnings.run) == 1


@pytest.mark.parametrize(
    ("each", "facts", "reason"),
    [
        (job(), script_facts(first_step_s=1.2), "its first step came after 1.2 s, imports included"),
        (job(FASTER, mapped=("num_workers",)), FACTS, "num_workers is an argument"),
    ],
)
def test_a_beginning_that_can_be_of_no_use_is_not_run(
    servers: Servers, beginnings: Beginnings, each: TrialJob, facts: ScriptFacts, reason: str
) -> None:
    (start,) = started(servers, each, facts=facts)
    assert start.kind == "forked" and reason in start.reason and not beginnings.run


def test_a_trial_that_cannot_go_on_from_it_is_forked_and_others_do(servers: Servers, beginnings: Beginnings) -> None:
    threads = job(environment=(("OMP_NUM_THREADS", "1"),))
    starts = started(servers, job(), threads, job())
    assert [start.kind for start in starts] == ["prepared", "forked", "prepared"]
    assert starts[1].reason == "its beginning asks for threads" and len(beginnings.run) == 1


def test_where_it_is_gone_trials_are_forked(
    servers: Servers, beginnings: Beginnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_with(job: TrialJob, launch: object, start: Start) -> Start:
        if launch == Prelude.launch:
            raise ForkServerError("it ended")
        return start

    monkeypatch.setattr(servers, "start_with", start_with)
    starts = started(servers, job(), job())
    assert [(start.kind, start.reason) for start in starts] == [
        ("forked", "the process that had run its beginning is gone: it ended")
    ] * 2


def test_another_command_has_a_beginning_of_its_own_and_the_one_used_least_gives_way(
    servers: Servers, beginnings: Beginnings
) -> None:
    commands = [("python", "train.py", word) for word in ("a", "b", "a", "c", "b")]
    starts = started(servers, *(job(command=command) for command in commands))
    assert {start.kind for start in starts} == {"prepared"}
    assert [prelude.command[2] for prelude in beginnings.run] == ["a", "b", "c", "b"]


def test_what_became_of_a_prepared_trial_decides_how_later_ones_start(servers: Servers, beginnings: Beginnings) -> None:
    cold: Any = servers
    with ForkRunner(cold, FACTS) as runner:
        first: Any = runner.start(job(FASTER))
        first.judged(ended("prepared", Outcome.CRASHED))
        again: Any = runner.start(job(FASTER))
        assert (again.kind, again.reason) == ("forked", "a prepared trial failed under these settings")
        other: Any = runner.start(job())
        assert other.kind == "prepared"
        again.judged(ended("forked", Outcome.OVER_CAP))
        last: Any = runner.start(job())
    assert (last.kind, last.reason) == ("forked", "a prepared trial failed where another did not")
