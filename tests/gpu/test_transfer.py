"""Copies to a CUDA device on a second stream: seen to overlap with computing, and to change nothing else."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from autotune.host import DeviceInfo
from autotune.model.facts import BatchCopy
from autotune.model.outcome import Outcome
from autotune.settings import Group
from autotune.trial.torch.side_stream import SideStream
from tests.gpu.bench import SCRIPTS, Bench, note, rank_of

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def copied(device: DeviceInfo) -> dict[str, Any]:
    """What the script says of one pass in each of the two ways."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS.parents[2])}
    command = [sys.executable, str(SCRIPTS / "prefetches.py")]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def test_the_side_stream_prefetcher_copies_while_the_device_computes(copied: dict[str, Any]) -> None:
    plain, ahead = copied["plain"], copied["ahead"]
    note("copying while computing: in order, on a side stream", f"{plain['share']:.0%}, {ahead['share']:.0%}")
    assert plain["num_copies"] == ahead["num_copies"] == len(ahead["are_whole"])
    assert plain["share"] < 0.05, "on one stream nothing happens at the same time"
    assert ahead["share"] > 0.5, "all copies but the first have a step to go with"


def test_a_batch_that_was_copied_on_a_side_stream_is_whole(copied: dict[str, Any]) -> None:
    assert all(copied["plain"]["are_whole"]) and all(copied["ahead"]["are_whole"])
    assert copied["is_safe_after_a_break"]


def test_the_side_stream_prefetcher_holds_one_batch_more(copied: dict[str, Any]) -> None:
    more_bytes = copied["ahead"]["peak_bytes"] - copied["plain"]["peak_bytes"]
    note("more memory for a copy ahead, in batches", f"{more_bytes / copied['batch_bytes']:.2f}")
    assert more_bytes < 1.5 * copied["batch_bytes"]


def test_a_forked_process_collects_nothing_of_its_parents_copies(device: DeviceInfo) -> None:
    """The end of an event asks CUDA, which does not work in a forked process: torch would end the process."""
    copied: list[Any] = [SideStream(torch.device("cuda")).begin(torch.ones(4).pin_memory())]
    copied.append(copied)
    torch.cuda.synchronize()
    gc.disable()
    try:
        del copied
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        gc.enable()


def test_a_script_that_copies_by_the_config_is_tuned_with_the_side_stream(bench: Bench) -> None:
    jobs = bench.probed("owns.py")
    assert jobs.facts is not None and Group.TRANSFER in jobs.facts.claims
    results = {
        name: bench.run(bench.trial(jobs, pin_memory=True, num_workers=2, **settings))
        for name, settings in (
            ("in_order", {"non_blocking": True}),
            ("ahead", {"stream_prefetch": True}),
        )
    }
    for result in results.values():
        assert result.outcome is Outcome.OK, result.reason + result.log_tail
    ahead, in_order = rank_of(results["ahead"]), rank_of(results["in_order"])
    assert (ahead.observed["stream_prefetch"], in_order.observed["stream_prefetch"]) == (True, False)
    assert in_order.observed["non_blocking"] is True
    assert ahead.start_digest == in_order.start_digest
    assert ahead.first_losses == pytest.approx(in_order.first_losses, rel=1e-3)
    assert not ahead.is_primed


@pytest.mark.parametrize("options", [(), ("--pinned-data",), ("--pin-memory",)], ids=str)
def test_an_unedited_script_finds_its_batches_on_the_device(bench: Bench, options: tuple[str, ...]) -> None:
    jobs = bench.probed("copies.py", *options)
    assert jobs.facts is not None and jobs.facts.batch_copy is BatchCopy.DIRECT
    own = bench.run(bench.trial(jobs))
    ahead = bench.run(bench.trial(jobs, stream_prefetch=True))
    for result in (own, ahead):
        assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(ahead).observed["stream_prefetch"] is True and "stream_prefetch" not in rank_of(own).observed
    assert rank_of(ahead).start_digest == rank_of(own).start_digest
    assert rank_of(ahead).first_losses[:10] == pytest.approx(rank_of(own).first_losses[:10], rel=1e-3)
    rates = [result.measurement.samples_per_second for result in (own, ahead) if result.measurement is not None]
    note(f"copies.py {' '.join(options)}: own, copied ahead", ", ".join(f"{rate:,.0f} a second" for rate in rates))


def test_a_script_with_a_prefetcher_of_its_own_is_left_alone(bench: Bench) -> None:
    facts = bench.probed("copies.py", "--prefetcher").facts
    assert facts is not None and facts.batch_copy is BatchCopy.OWN_STREAM


def test_batches_are_handed_out_on_the_device_by_loader_workers_too(bench: Bench) -> None:
    jobs = bench.probed("trains.py")
    assert jobs.facts is not None and jobs.facts.batch_copy is BatchCopy.DIRECT
    results = [
        bench.run(bench.trial(jobs, num_workers=2, pin_memory=pins, stream_prefetch=True)) for pins in (False, True)
    ]
    for result in results:
        assert result.outcome is Outcome.OK, result.reason + result.log_tail
        assert rank_of(result).observed["stream_prefetch"] is True
        assert not rank_of(result).is_primed
