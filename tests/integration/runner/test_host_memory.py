"""The host's memory, as real children hold it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from autotune.host import SHARED_MEMORY, DeviceInfo
from autotune.model.outcome import Outcome
from autotune.process_memory import held_memory_bytes
from autotune.runner.cold_runner import ColdRunner
from autotune.units import GIB, MIB
from tests.integration.runner.ground import EITHER, Ground

ABSENT = DeviceInfo(
    kind="cuda", name="a device that is not there", total_bytes=8 * GIB, free_bytes=8 * GIB, uuid="GPU-not-there"
)
QUEUED = """
    import time

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Large(Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            return torch.full((1 << 20,), float(index))


    batches = iter(DataLoader(Large(), batch_size=2, num_workers=2, prefetch_factor=4))
    held = next(batches)
    time.sleep(1.0)
    print("ready", flush=True)
    time.sleep(600)
"""
FORKING = """
    import os
    import time

    held = b"x" * (200 << 20)
    print("ready", flush=True)
    while True:
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                time.sleep(0.005)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
"""
NUM_READINGS = 200


@EITHER
def test_a_trial_on_a_device_is_ended_for_the_hosts_memory_as_well(ground: Ground) -> None:
    runner = ColdRunner(ground.workspace, ABSENT)
    job = ground.job("ends.py", "allocates", str(600 * MIB), device="cuda", cap_bytes=8 * GIB, host_cap_bytes=100 * MIB)
    result = runner.start(job).result()
    assert result.outcome is Outcome.OVER_CAP
    assert "host's memory" in result.reason
    assert result.lacks_host_memory
    assert result.peak_host_bytes is not None and 100 * MIB < result.peak_host_bytes < 400 * MIB
    assert result.peak_memory_bytes is None
    ground.check("over the host's cap", result)


@EITHER
def test_on_a_cpu_the_host_is_the_device(ground: Ground) -> None:
    result = ground.run("ends.py", "allocates", str(300 * MIB), cap_bytes=100 * MIB)
    assert result.outcome is Outcome.OVER_CAP
    assert not result.lacks_host_memory
    assert result.peak_host_bytes == result.peak_memory_bytes


@contextmanager
def running(script: Path, text: str) -> Iterator[psutil.Process]:
    """A script in a process, from its first printed line on; the process and its children are ended afterwards."""
    script.write_text(textwrap.dedent(text))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None and child.stdout.readline().strip() == "ready"
            yield psutil.Process(child.pid)
        finally:
            for process in psutil.Process(child.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            child.kill()


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="this system has no /dev/shm")
def test_batches_in_the_queues_of_workers_are_counted_once(tmp_path: Path) -> None:
    with running(tmp_path / "queued.py", QUEUED) as root:
        pids = [root.pid, *(process.pid for process in root.children(recursive=True))]
        held = held_memory_bytes(pids)
        anonymous = sum(
            int(line.split()[1]) * 1024
            for pid in pids
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            if line.startswith("Pss_Anon:")
        )
    # Two workers, four batches of 8 MiB each ahead; the training process holds one more.
    assert 8 * 8 * MIB <= held - anonymous <= 11 * 8 * MIB


def test_pages_shared_with_workers_that_end_while_they_are_read_are_counted_once(tmp_path: Path) -> None:
    """A trial with workers that begin anew in each epoch once seemed to hold 412 MB where it held 264."""
    readings: list[int] = []
    with running(tmp_path / "forking.py", FORKING) as root:
        while len(readings) < NUM_READINGS:
            workers = [process.pid for process in root.children()]
            if len(workers) == 2:
                readings.append(held_memory_bytes([*workers, root.pid]))
    assert max(readings) < 1.2 * 200 * MIB
