"""Nothing is built before the clock may start; samples are counted one by one; rates are those of the loader."""

from __future__ import annotations

import inspect
import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from autotune.measure.block import merge
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.trial.loader.gate import Gate
from autotune.trial.meter.phase_rules import DRAIN_QUEUES
from autotune.trial.torch import torch_names
from tests.integration.trial.ground import SCRIPTS, Ground, Run

SCREENING = WindowRule(half_width_ratio=0.05, max_window_s=3.0)


@pytest.fixture(autouse=True)
def unhurried(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "is_hasty", False)


class Job:
    """The script of a loader that can be waited for, in a folder of its own."""

    def __init__(self, ground: Ground, *arguments: str) -> None:
        self.ground, self.arguments = ground, arguments
        self.path = ground.script((SCRIPTS / "slow_loader.py").read_text())
        self.facts: ScriptFacts = ground.probe(self.path, *arguments)
        self.began = 0.0

    def trial(self, *more: str, **changes: Any) -> Run:
        for book in self.books():
            book.unlink()
        self.began = time.monotonic()
        run = self.ground.trial(self.path, self.facts, *self.arguments, *more, **changes)
        assert run.outcome == "ok", f"{run.verdict} {run.output}"
        return run

    def books(self) -> list[Path]:
        return sorted(self.path.parent.glob("book-*.txt"))

    def built(self) -> list[tuple[float, int]]:
        """(time, index) of every sample."""
        rows = [line.split() for book in self.books() for line in book.read_text().splitlines()]
        return sorted((float(at), int(index)) for kind, index, at in rows if kind == "item")


def ramp_at(job: Job, run: Run) -> float:
    """When the gate was opened, on the clock of all processes."""
    parts = run.rank.durations_s
    # The trial's clock starts with its request, a moment after the job's own.
    return job.began + sum(parts[name] for name in ("start", "imports", "preparation", "warm_up", "compute"))


def waits_for_compute(job: Job, run: Run) -> bool:
    """Whether nothing was built between the first batch of 8 samples and the end of the compute-only blocks.

    Their durations lie between the two in any order of events, however late a process reads its clock.
    """
    compute_s = sum(block.duration_s for block in run.rank.blocks if block.phase == "compute")
    times = [at for at, _ in job.built()]
    return 0.3 < compute_s <= times[8] - times[7]


def built_per_second(job: Job, run: Run) -> float:
    """Samples that the workers wrote down while the window was open, per second."""
    parts = run.rank.durations_s
    began = ramp_at(job, run) + parts["ramp"]
    built = [at for at, _ in job.built() if began <= at < began + parts["window"]]
    return len(built) / parts["window"]


def waits_at(gate: Gate, told: Connection) -> None:
    told.send_bytes(b"waits")
    gate.wait()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_gate_opens_and_closes_although_a_worker_was_killed_while_it_waited(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    gate = Gate(context, 2, 2)
    hears, told = context.Pipe(duplex=False)
    killed, waiting = (context.Process(target=waits_at, args=(gate, told), daemon=True) for _ in range(2))
    for worker in (killed, waiting):
        worker.start()
        assert hears.recv_bytes() == b"waits"
    time.sleep(0.3)  # The message comes a moment before the wait.
    killed.kill()
    killed.join()
    opener = threading.Thread(target=gate.open, daemon=True)
    opener.start()
    opener.join(30.0)
    assert not opener.is_alive() and gate.is_open
    waiting.join(30.0)
    assert waiting.exitcode == 0
    gate.close()
    assert not gate.is_open


def test_this_torch_has_all_that_the_seams_are_built_on() -> None:
    """A torch without them is measured less well, and says so; the one of the tests is to have them all."""
    assert torch_names.ITERATOR is not None
    assert torch_names.WORKERS_ITERATOR is not None
    assert len(torch_names.fetchers()) == 2
    assert torch_names.HAS_CALL_SLOT
    assert issubclass(torch.nn.SyncBatchNorm, torch_names.BATCH_NORM)
    assert not torch_names.is_enabled(torch.autocast("cpu", enabled=False))


@pytest.mark.parametrize(
    ("context", "is_persistent"),
    [
        (None, False),
        (None, True),
        pytest.param("spawn", False, marks=pytest.mark.slow),
        pytest.param("forkserver", True, marks=pytest.mark.slow),
    ],
)
def test_workers_build_one_batch_before_the_gate_opens(
    ground: Ground, context: str | None, is_persistent: bool
) -> None:
    job = Job(ground, *(("--context", context) if context else ()))
    run = job.trial(num_workers=3, prefetch_factor=4, persistent_workers=is_persistent)
    assert waits_for_compute(job, run)
    assert len(job.built()) > 200
    assert not run.rank.is_primed


def test_the_users_worker_init_runs_once_in_every_worker(ground: Ground) -> None:
    job = Job(ground)
    job.trial(num_workers=3, persistent_workers=True)  # others are started anew for the epoch after the window
    firsts = [book.read_text().splitlines()[0].split()[:2] for book in job.books()]
    assert sorted(firsts) == [["init", "0"], ["init", "1"], ["init", "2"]]
    assert sum(book.read_text().count("init") for book in job.books()) == 3


@pytest.mark.parametrize("num_workers", [0, 2])
def test_samples_are_counted_exactly_where_the_last_batch_is_smaller(ground: Ground, num_workers: int) -> None:
    """20 samples in batches of 8 are 8, 8 and 4 over and over."""
    run = Job(ground, "--samples", "20").trial(num_workers=num_workers)
    window = [block for block in run.rank.blocks if block.phase == "window"]
    sizes = [8, 8, 4]
    for block in window:
        possible = {sum(sizes[(first + i) % 3] for i in range(block.num_micro_batches)) for first in range(3)}
        assert block.num_samples in possible
    num_batches = sum(block.num_micro_batches for block in window)
    assert sum(block.num_samples for block in window) == pytest.approx(num_batches * 20 / 3, abs=8)


@pytest.mark.parametrize(
    ("num_workers", "prefetch_factor"),
    [(2, 2), (4, 4), pytest.param(2, 4, marks=pytest.mark.slow), pytest.param(4, 2, marks=pytest.mark.slow)],
)
def test_the_rate_of_a_job_that_waits_for_its_loader_is_the_loaders(
    ground: Ground, num_workers: int, prefetch_factor: int
) -> None:
    """A queue that was full at the start would show up to seven times as much in a window like this."""
    sleep_s = 0.01
    job = Job(ground, "--sleep", str(sleep_s))
    run = job.trial(num_workers=num_workers, prefetch_factor=prefetch_factor, job={"window": SCREENING})
    assert run.verdict is not None and run.verdict.measurement is not None
    rate, truth = run.verdict.measurement.samples_per_second, built_per_second(job, run)
    print(f"W={num_workers} P={prefetch_factor}: {rate / truth:.3f} of the loader's rate, {truth:.0f} samples/s")
    # What was built in the window and not what sleeping alone would allow: others may keep the cores busy.
    assert rate == pytest.approx(truth, rel=0.2)
    assert truth < 1.05 * num_workers / sleep_s
    assert run.verdict.measurement.data_wait_fraction > 0.7
    window = [block for block in run.rank.blocks if block.phase == "window"]
    num_built = [block.num_built for block in window if block.num_built is not None]
    assert len(num_built) == len(window)
    # Nothing else than what is ahead or being built lies between what was built and what was delivered.
    num_delivered = sum(block.num_micro_batches for block in window)
    assert sum(num_built) == pytest.approx(num_delivered, abs=num_workers * (prefetch_factor + 1))
    times = merge(window, len(window))[0].build_times
    assert times is not None
    assert (times.num_workers, times.prefetch_factor) == (num_workers, prefetch_factor)
    assert times.num_finished == pytest.approx(sum(num_built), abs=num_workers)
    assert sleep_s <= times.mean_s <= num_workers * sum(block.duration_s for block in window) / times.num_finished * 1.2


@pytest.mark.skipif("in_order" not in inspect.signature(DataLoader).parameters, reason="torch 2.6 brought it")
def test_batches_that_come_as_they_are_ready_are_held_back_alike(ground: Ground) -> None:
    sleep_s = 0.01
    job = Job(ground, "--any-order", "--sleep", str(sleep_s), "--samples", "20")
    run = job.trial(num_workers=3, prefetch_factor=4, job={"window": SCREENING})
    assert waits_for_compute(job, run)
    assert not run.rank.is_primed
    # 20 samples in batches of 8 are 8, 8 and 4, in any order: told apart by what came.
    sizes = {block.num_samples for block in run.rank.blocks if block.phase == "ramp"}
    assert sizes <= {4.0, 8.0}


@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_first_batch_that_cannot_be_read_holds_nobody_up(ground: Ground, is_persistent: bool) -> None:
    """The next one is another worker's, which waits at the gate; without it the queue may have filled."""
    job = Job(ground)
    run = job.trial("--broken", "8", num_workers=3, persistent_workers=is_persistent, job={"window": SCREENING})
    assert not run.is_timed_out
    assert run.rank.is_primed


@pytest.mark.parametrize("is_persistent", [False, True])
def test_an_iteration_that_the_script_never_reads_holds_nobody_up(ground: Ground, is_persistent: bool) -> None:
    job = Job(ground, "--unread")
    run = job.trial(num_workers=2, persistent_workers=is_persistent)
    assert {block.phase for block in run.rank.blocks} >= {"warmup", "compute", "window"}
    assert not run.rank.is_primed


def test_without_a_gate_the_queue_is_drained_and_the_result_marked(ground: Ground) -> None:
    sleep_s = 0.01
    job = Job(ground, "--sleep", str(sleep_s))
    run = job.trial("--no-fetchers", num_workers=2, prefetch_factor=4, job={"window": SCREENING})
    assert run.rank.is_primed
    ramp = sum(block.num_micro_batches for block in run.rank.blocks if block.phase == "ramp")
    assert ramp >= DRAIN_QUEUES * 2 * 4 + 2
    assert run.verdict is not None and run.verdict.measurement is not None
    assert run.verdict.measurement.is_primed
    assert {(block.num_built, block.build_times) for block in run.rank.blocks} == {(None, None)}
    assert run.verdict.measurement.samples_per_second == pytest.approx(built_per_second(job, run), rel=0.2)
