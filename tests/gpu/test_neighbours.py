"""Another process on the device, and a trial that dies in a kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autotune.errors import HostError
from autotune.host import DeviceInfo
from autotune.model.outcome import Outcome
from autotune.runner.devices import choose_device, processes, used_bytes
from autotune.study.target import FREE_SHARE_OF_DEVICE, open_target
from autotune.units import GIB, format_bytes
from tests.gpu.bench import SCRIPTS, Bench, note
from tests.unit.facts import search_spec

pytestmark = pytest.mark.gpu


class Neighbour:
    """Another process on the device."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / "occupies.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._expect("ready")

    def grow(self) -> None:
        """Takes one GiB more."""
        assert self._process.stdin is not None
        self._process.stdin.write("grow\n")
        self._process.stdin.flush()
        self._expect("grown")

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line == word, line


@pytest.fixture
def neighbour(device: DeviceInfo) -> Iterator[Neighbour]:
    made = Neighbour()
    yield made
    made.close()


def test_another_process_on_the_device_is_seen_and_the_search_refuses(neighbour: Neighbour) -> None:
    assert choose_device("cuda").num_other_processes >= 1
    with pytest.raises(HostError, match="--share-gpu"):
        open_target(search_spec(device="cuda"))


def test_sharing_takes_the_cap_from_what_is_free(neighbour: Neighbour, device: DeviceInfo) -> None:
    target = open_target(search_spec(device="cuda", share_gpu=True))
    now = choose_device("cuda")
    assert target.cap_bytes <= FREE_SHARE_OF_DEVICE * now.total_bytes - FREE_SHARE_OF_DEVICE * 2 * GIB
    assert target.cap_bytes == pytest.approx(FREE_SHARE_OF_DEVICE * now.free_bytes, rel=0.01)
    everything = open_target(search_spec(device="cuda", share_gpu=True, memory_cap="100%"))
    assert everything.cap_bytes == pytest.approx(target.cap_bytes, rel=0.01)


def test_what_a_neighbour_grows_by_is_not_charged_to_the_trial(bench: Bench, neighbour: Neighbour) -> None:
    if not processes(bench.device):
        pytest.skip("NVML shows no processes here, so nobody can tell whose the memory is")
    bench.probed("trains.py")
    handle = bench.runner.start(bench.trial(bench.probed("trains.py")))
    neighbour.grow()
    neighbour.grow()
    handle.wait()
    seen = handle.memory.device.peak_bytes
    result = handle.result()
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    note("peak of a trial beside a neighbour that grew by 2 GiB", format_bytes(seen))
    rank = result.ranks[0]
    assert rank.peak_reserved_bytes is not None and result.peak_memory_bytes is not None
    assert result.peak_memory_bytes < rank.peak_reserved_bytes + 3 * GIB // 2


def test_a_trial_that_dies_in_a_kernel_does_not_harm_the_next(bench: Bench) -> None:
    before = used_bytes(bench.device)
    jobs = bench.probed("asserts.py")
    result = bench.run(replace(bench.trial(jobs), start_limit_s=120.0, total_limit_s=180.0))
    assert result.outcome is Outcome.CRASHED, result.reason + result.log_tail
    assert "assert" in result.reason, result.reason
    following = bench.train()
    assert following.outcome is Outcome.OK, following.reason + following.log_tail
    after = used_bytes(bench.device)
    assert before is not None and after is not None and abs(after - before) < GIB // 2
