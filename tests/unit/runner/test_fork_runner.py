"""Which trials are forked, from which servers, and what one gets where none can be made."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.host import cpu_device
from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.protocol.environment import BY_CALL
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.runner import fork_runner, probe_runner, server_start
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import MAX_SERVERS, ForkRunner, why_cold
from autotune.runner.fork_server import ForkServerError, UnsoundForkError
from autotune.runner.probe_runner import LEAST_CPUS, ProbeRunner
from autotune.runner.runner import Start
from autotune.runner.server_start import USUAL_IMPORTS, start_server
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
            spec=given["spec"],
            folder=Path(given["spec"].folder),
            pid=len(self.started),
            import_s=1.0,
            is_open=True,
            imports=None,
        )
        server.is_alive = lambda: server.is_open
        server.go_on = lambda imports: setattr(server, "imports", imports)
        server.close = server.give_up = lambda: setattr(server, "is_open", False)
        self.started.append(server)
        return server

    def environment(self, job: TrialJob, _: TrialPaths) -> dict[str, str]:
        return {**dict(job.environment), "CUDA_VISIBLE_DEVICES": ",".join(job.devices)}

    def start_with(self, job: TrialJob, launch: object, start: Start) -> Start:
        return start


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Servers:
    made = Servers(tmp_path)
    monkeypatch.setattr(server_start, "ForkServer", made.start)
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


def test_the_first_trial_takes_over_the_server_that_began_beside_the_probe(servers: Servers) -> None:
    cold: Any = servers
    begun: Any = start_server(cold, job(), is_before_probe=True)
    assert begun.imports is None
    facts = replace(FACTS, imports=("timm", *USUAL_IMPORTS))
    with ForkRunner(cold, facts, least_preparation_s=math.inf, begun=begun) as runner:
        starts: list[Any] = [runner.start(job()), runner.start(job(environment=(("OMP_WAIT_POLICY", "PASSIVE"),)))]
    assert [start.server_pids for start in starts] == [(0,), (1,)]
    assert [server.imports for server in servers.started] == [facts.imports] * 2
    assert [server.spec.imports for server in servers.started] == [USUAL_IMPORTS, ()]
    assert not any(server.is_open for server in servers.started)


@pytest.mark.parametrize("fault", ["dead", "other device", "more imports than the script"])
def test_a_server_that_began_beside_the_probe_and_is_of_no_use_is_given_up(servers: Servers, fault: str) -> None:
    cold: Any = servers
    begun: Any = start_server(cold, job(devices=("GPU-0",)), is_before_probe=True)
    begun.is_open = fault != "dead"
    facts = FACTS if fault == "more imports than the script" else replace(FACTS, imports=USUAL_IMPORTS)
    with ForkRunner(cold, facts, least_preparation_s=math.inf, begun=begun) as runner:
        start: Any = runner.start(job(devices=("GPU-1",) if fault == "other device" else ("GPU-0",)))
        assert not begun.is_open, "it holds the memory of torch"
        assert start.server_pids == (1,) and begun.imports is None


def test_a_server_that_no_trial_can_be_forked_from_is_given_up_at_once(servers: Servers) -> None:
    cold: Any = servers
    cold.start = lambda job, start_reason: start_reason
    begun: Any = start_server(cold, job(), is_before_probe=True)
    with ForkRunner(cold, replace(FACTS, early_environment=("OMP_WAIT_POLICY",)), begun=begun) as runner:
        assert "OMP_WAIT_POLICY" in str(runner.start(job()))
        assert not begun.is_open


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ForkServerError("the imports failed"), "a new server"),
        (UnsoundForkError("an import has started 1 thread"), "an import has started 1 thread"),
    ],
)
def test_a_server_that_began_beside_the_probe_and_fails_is_replaced_only_if_a_new_one_may_fare_better(
    servers: Servers, error: ForkServerError, expected: str
) -> None:
    """The second import of the same modules, to the same end, took 12 s of a search of two minutes."""
    cold: Any = servers
    cold.start = lambda job, start_reason: start_reason
    begun: Any = start_server(cold, job(), is_before_probe=True)

    def fails(imports: tuple[str, ...]) -> None:
        begun.is_open = False
        raise error

    begun.go_on = fails
    facts = replace(FACTS, imports=USUAL_IMPORTS)
    with ForkRunner(cold, facts, least_preparation_s=math.inf, begun=begun) as runner:
        start: Any = runner.start(job())
        found = start if isinstance(start, str) else "a new server"
        assert found == expected
        assert len(servers.started) == (2 if expected == "a new server" else 1)


def test_a_server_that_no_trial_took_over_ends_with_the_runner(servers: Servers) -> None:
    cold: Any = servers
    begun: Any = start_server(cold, job(), is_before_probe=True)
    ForkRunner(cold, FACTS, begun=begun).close()
    assert not begun.is_open


PROBE = replace(job(), mode=Mode.PROBE)


def probe_runner_on(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, *, num_cpus: float, devices: tuple[str, ...] = ()
) -> ProbeRunner:
    monkeypatch.setattr(probe_runner, "usable_cpus", lambda: num_cpus)
    cold: Any = servers
    cold.start = lambda job: job.mode
    return ProbeRunner(cold, devices)


def test_beside_the_first_probe_a_server_begins_and_ends_with_the_probes_runner(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.workspace.has_layers = True
    jobs: list[TrialJob] = []
    monkeypatch.setattr(servers, "environment", lambda job, _: jobs.append(job) or {})
    removed: list[Path] = []
    servers.workspace.remove_trial = removed.append
    runner = probe_runner_on(servers, monkeypatch, num_cpus=LEAST_CPUS, devices=("GPU-1",))
    assert [runner.start(PROBE), runner.start(PROBE)] == [Mode.PROBE, Mode.PROBE]
    [begun] = servers.started
    assert begun.is_open
    assert [(each.mode is Mode.PROBE, each.devices) for each in jobs] == [(False, ("GPU-1",))]
    runner.close()
    assert not begun.is_open and removed == [begun.folder]


def test_the_runner_of_the_trials_has_the_server_from_then_on(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.workspace.has_layers = True
    runner = probe_runner_on(servers, monkeypatch, num_cpus=16)
    runner.start(PROBE)
    trials = runner.for_trials(FACTS, cpu_device())
    runner.close()
    [begun] = servers.started
    assert begun.is_open
    trials.close()
    assert not begun.is_open


@pytest.mark.parametrize(
    ("has_layers", "num_cpus", "changes"),
    [(False, 16, {}), (True, 2, {}), (True, 16, {"world_size": 2}), (True, 16, {"command": ("torchrun", "train.py")})],
)
def test_no_server_begins_without_layers_on_few_cpus_or_for_what_is_never_forked(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, has_layers: bool, num_cpus: float, changes: dict[str, Any]
) -> None:
    servers.workspace.has_layers = has_layers
    runner = probe_runner_on(servers, monkeypatch, num_cpus=num_cpus)
    runner.start(replace(PROBE, **changes))
    assert not servers.started


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


def test_a_beginning_whose_socket_cannot_be_bound_is_not_run_and_trials_are_forked(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    short = TrialPaths(tmp_path / ("long" * 30))
    servers.workspace.short, servers.workspace.folder = lambda _: short, tmp_path
    start_with = servers.start_with

    def started_with(job: TrialJob, launch: Any, start: Start) -> Start:
        if getattr(launch, "__name__", "") != "_launch_prelude":
            return start_with(job, launch, start)
        cold = ColdRunner(servers.workspace, cpu_device())
        monkeypatch.setattr(cold, "_start", lambda job, paths, launch, start: launch(None, {}, paths))
        return cold.start_with(job, launch, start)  # type: ignore[return-value]

    monkeypatch.setattr(servers, "start_with", started_with)
    (start,) = started(servers, job())
    assert (start.kind, start.reason) == ("forked", "its beginning cannot be prepared: AF_UNIX path too long")


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
