"""Trials on a CUDA device that are forked from a server of their imports, or go on from the script's own beginning."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest

from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.protocol.job import TrialJob
from autotune.runner.devices import processes
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.fork_server import ForkServer
from autotune.units import MIB
from tests.gpu.bench import Bench, note, rank_of, used_when_settled

pytestmark = pytest.mark.gpu

LOSS_TOLERANCE = 1e-3
"""Relative: a device adds up in another order every time, and every loss follows from the ones before."""
CONTEXT_BYTES = 100 * MIB
"""Less than a CUDA context takes."""


@pytest.fixture
def facts(bench: Bench) -> ScriptFacts:
    """What the probe learned of the script that trains."""
    facts = bench.probed("trains.py").facts
    assert facts is not None
    return facts


def run(runner: ForkRunner, job: TrialJob) -> TrialResult:
    """Runs a job to its end."""
    handle = runner.start(job)
    handle.wait()
    return handle.result()


def server_of(runner: ForkRunner) -> ForkServer:
    """The only server of a runner."""
    (server,) = runner._servers.values()
    return server


def device_files(pid: int) -> list[str]:
    """The driver's files that a process holds open; it has some as soon as it has asked the driver for anything."""
    targets = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
    return [target for target in targets if target.startswith("/dev/nvidia")]


def assert_trained_alike(result: TrialResult, cold: TrialResult) -> None:
    """Fails unless both began with the same weights and batch, and computed the same from them."""
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).start_digest is not None
    assert rank_of(result).start_digest == rank_of(cold).start_digest
    assert len(rank_of(cold).first_losses) > 1
    assert rank_of(result).first_losses == pytest.approx(rank_of(cold).first_losses, rel=LOSS_TOLERANCE)
    assert dict(rank_of(result).observed) == dict(rank_of(cold).observed)


def start_s(result: TrialResult) -> str:
    """What starting and importing took, for people."""
    parts = rank_of(result).durations_s
    return f"{result.start} {parts.get('start', 0.0) + parts.get('imports', 0.0):.2f} s"


def test_forkserver_with_cuda_in_the_children(bench: Bench, plain: TrialResult, facts: ScriptFacts) -> None:
    job = bench.trial(bench.probed("trains.py"))
    before, others = used_when_settled(bench), set(processes(bench.device))
    with ForkRunner(bench.runner, facts, least_preparation_s=math.inf) as runner:
        first = run(runner, job)
        server = server_of(runner)
        second = run(runner, job)
        assert (first.start, second.start) == ("forked", "forked"), f"{first.start_reason}; {second.start_reason}"
        assert server_of(runner) is server and server.is_alive()
        # No trial runs here: what is on the device now would be the server's.
        assert used_when_settled(bench) - before < CONTEXT_BYTES
        assert set(processes(bench.device)) <= others
        assert device_files(server.pid) == []
    for result in (first, second):
        assert_trained_alike(result, plain)
        assert result.outside_allocator_bytes is not None and result.outside_allocator_bytes > 50 * MIB
        assert result.peak_memory_bytes == pytest.approx(plain.peak_memory_bytes, rel=0.1, abs=200 * MIB)
    note("start and imports", ", ".join(map(start_s, (plain, first, second))))


def test_a_forked_child_that_dies_in_a_kernel_leaves_server_and_device_to_the_next(
    bench: Bench, plain: TrialResult, facts: ScriptFacts
) -> None:
    dying = replace(bench.trial(bench.probed("asserts.py")), start_limit_s=120.0, total_limit_s=180.0)
    job = bench.trial(bench.probed("trains.py"))
    with ForkRunner(bench.runner, facts, least_preparation_s=math.inf) as runner:
        crashed = run(runner, dying)
        assert (crashed.start, crashed.outcome) == ("forked", Outcome.CRASHED), crashed.reason + crashed.log_tail
        assert "assert" in crashed.reason, crashed.reason
        server = server_of(runner)
        following = run(runner, job)
        assert following.start == "forked", following.start_reason
        assert server_of(runner) is server
    assert_trained_alike(following, plain)


@pytest.mark.parametrize("arguments", [(), ("--asks-first",)])
def test_trials_go_on_from_the_scripts_beginning_before_it_starts_cuda(
    bench: Bench, plain: TrialResult, facts: ScriptFacts, arguments: tuple[str, ...]
) -> None:
    """Though it asks whether there is a device, as nearly every script does."""
    job = bench.trial(bench.probed("trains.py", *arguments))
    before, others = used_when_settled(bench), set(processes(bench.device))
    with ForkRunner(bench.runner, facts, least_preparation_s=0.0) as runner:
        results = [run(runner, job), run(runner, job)]
        assert [result.start for result in results] == ["prepared", "prepared"], results[0].start_reason
        (preparation,) = runner._preparations.values()
        assert preparation.is_alive()
        assert used_when_settled(bench) - before < CONTEXT_BYTES
        assert set(processes(bench.device)) <= others
        assert device_files(preparation.pid) == []
    for result in results:
        assert_trained_alike(result, plain)
    note("start and imports", ", ".join(map(start_s, results)))
    note("settings matter", results[0].start_reason)


@pytest.mark.parametrize("arguments", [(), ("--asks-name",)])
def test_a_beginning_that_asks_for_devices_is_shared(bench: Bench, arguments: tuple[str, ...]) -> None:
    """To its name, which takes a context to ask for."""
    job = bench.trial(bench.probed("begins.py", *arguments))
    assert job.facts is not None and job.facts.cuda_devices is not None
    num_devices = job.facts.cuda_devices.num_devices
    with ForkRunner(bench.runner, job.facts, least_preparation_s=0.0) as runner:
        results = [run(runner, job), run(runner, job)]
        assert [result.start for result in results] == ["prepared", "prepared"], results[0].start_reason
        (preparation,) = runner._preparations.values()
        assert device_files(preparation.pid) == []
    cold = bench.run(job)
    for result in results:
        assert_trained_alike(result, cold)
        assert f"{num_devices} of {num_devices} devices, trains on cuda:0" in result.log_tail
    assert ("CUDA starts" in results[0].start_reason) == bool(arguments), results[0].start_reason
    note("start and imports, devices asked for", ", ".join(map(start_s, (cold, *results))))


def test_a_beginning_that_chooses_a_device_is_shared_until_something_is_moved_there(bench: Bench) -> None:
    """As the Hugging Face Trainer's arguments choose one, and ask whether it computes in bf16."""
    job = bench.trial(bench.probed("begins.py", "--chooses"))
    assert job.facts is not None and job.facts.cuda_devices is not None and job.facts.cuda_devices.capabilities
    major, minor = job.facts.cuda_devices.capabilities[0]
    with ForkRunner(bench.runner, job.facts, least_preparation_s=0.0) as runner:
        results = [run(runner, job), run(runner, job)]
        assert [result.start for result in results] == ["prepared", "prepared"], results[0].start_reason
        (preparation,) = runner._preparations.values()
        assert device_files(preparation.pid) == []
    cold = bench.run(job)
    for result in (*results, cold):
        assert f"bf16: {major >= 8}, capability ({major}, {minor})\nmajor {major}\n" in result.log_tail
    for result in results:
        assert_trained_alike(result, cold)
        assert "CUDA is on: False" in result.log_tail
        assert "trains on cuda:0" in result.log_tail
    assert "CUDA starts" in results[0].start_reason, results[0].start_reason
    note("start and imports, device chosen", ", ".join(map(start_s, (cold, *results))))
