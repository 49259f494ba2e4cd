"""What is over a limit while a trial runs, and its peaks after it, from readings that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from autotune.host import DeviceInfo
from autotune.runner import trial_memory
from autotune.runner.trial_memory import TrialMemory
from autotune.settings import Settings
from autotune.units import GIB
from tests.unit.facts import script_facts
from tests.unit.runner.samples import job, rank

CPU = DeviceInfo(kind="cpu", name="CPU", total_bytes=64 * GIB, free_bytes=60 * GIB)
GPU = DeviceInfo(kind="cuda", name="GPU", total_bytes=80 * GIB, free_bytes=79 * GIB, uuid="GPU-0")


@dataclass
class Host:
    """Stands for the trial's tree."""

    cap_bytes: int
    now_bytes: int = 0
    last_bytes: int | None = None
    peak_bytes: int = 0
    is_shared_memory_full: bool = False
    servers: Sequence[int] = ()

    def begin_anew(self) -> None:
        self.peak_bytes = 0

    def check(self, pids: Sequence[int], *, is_quiet: bool, servers: Sequence[int]) -> bool:
        self.last_bytes, self.servers = self.now_bytes, servers
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        return self.now_bytes > self.cap_bytes


@dataclass
class Device:
    """Stands for the trial's devices."""

    trained_on: Sequence[DeviceInfo]
    now_bytes: int = 0
    last_bytes: int | None = None
    peak_bytes: int = 0

    def begin_anew(self) -> None:
        self.peak_bytes = 0

    def check(self, pids: Sequence[int]) -> int:
        self.last_bytes = self.now_bytes
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        return self.peak_bytes

    def outside_allocator_bytes(self, free_bytes: int | None, reserved_bytes: int | None) -> int | None:
        return None if free_bytes is None or reserved_bytes is None else 80 * GIB - free_bytes - reserved_bytes


@pytest.fixture(autouse=True)
def readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_memory, "TreeMemory", Host)
    monkeypatch.setattr(trial_memory, "DeviceMemory", Device)


class Watched:
    """One trial, and what it holds."""

    def __init__(self, device: DeviceInfo, servers: Sequence[int] = (), **changes: Any) -> None:
        self.memory = TrialMemory(job(**changes), device, servers)

    @property
    def host(self) -> Any:
        return self.memory.host

    def look(self, *, host: int = 0, device: int = 0) -> str | None:
        self.host.now_bytes = host
        setattr(self.memory.device, "now_bytes", device)  # noqa: B010
        return self.memory.overrun([7], is_quiet=False)


def test_on_a_cpu_the_host_is_what_the_cap_is_on() -> None:
    watched = Watched(CPU, servers=(3,), cap_bytes=4 * GIB)
    assert watched.look(host=4 * GIB) is None
    assert watched.look(host=5 * GIB) == "is_over_cap"
    assert watched.memory.last_bytes == 5 * GIB
    assert watched.host.servers == (3,)
    peaks = watched.memory.peaks([])
    assert (peaks.memory_bytes, peaks.host_bytes, peaks.outside_allocator_bytes) == (5 * GIB, 5 * GIB, None)


def test_on_a_device_the_host_has_a_limit_of_its_own() -> None:
    watched = Watched(GPU, cap_bytes=4 * GIB, host_cap_bytes=2 * GIB)
    assert watched.look(host=1 * GIB, device=4 * GIB) is None
    assert watched.memory.last_bytes == 4 * GIB
    assert watched.look(host=3 * GIB, device=4 * GIB) == "is_over_host_cap"
    assert watched.look(host=3 * GIB, device=5 * GIB) == "is_over_cap"


def test_without_a_limit_of_its_own_the_host_ends_no_trial_on_a_device() -> None:
    assert Watched(GPU, cap_bytes=4 * GIB).look(host=30 * GIB) is None


def test_full_shared_memory_is_named_before_all_else() -> None:
    watched = Watched(CPU, cap_bytes=4 * GIB)
    watched.host.is_shared_memory_full = True
    assert watched.look(host=5 * GIB) == "is_shared_memory_full"


def test_what_ranks_held_at_the_end_counts_though_nobody_looked_then() -> None:
    watched = Watched(CPU)
    watched.look(host=1 * GIB)
    ranks = [rank(rank=n, world_size=2, held_host_bytes=2 * GIB) for n in range(2)]
    assert watched.memory.peaks(ranks).memory_bytes == 4 * GIB


def test_what_ranks_held_for_a_moment_in_their_steps_counts_on_top() -> None:
    """Activations are gone between two steps, and nobody looks at the tree while the window is open."""
    watched = Watched(CPU)
    watched.look(host=1 * GIB)
    ranks = [rank(rank=n, world_size=2, held_host_bytes=2 * GIB, passing_host_bytes=n * GIB) for n in range(2)]
    peaks = watched.memory.peaks(ranks)
    assert (peaks.memory_bytes, peaks.trained_bytes) == (5 * GIB, 5 * GIB)
    # A validation comes on top of what is held between two steps, and not of what is gone by then.
    facts = script_facts(validation_host_bytes=GIB, validation_host_growth_bytes=2 * GIB)
    peaks = Watched(CPU, facts=facts).memory.peaks([rank(held_host_bytes=2 * GIB, passing_host_bytes=GIB)])
    assert (peaks.memory_bytes, peaks.trained_bytes) == (4 * GIB, 3 * GIB)


def test_what_a_diagnosis_takes_for_its_looks_is_none_of_the_scripts() -> None:
    watched = Watched(GPU)
    watched.look(host=2 * GIB, device=3 * GIB)
    watched.memory.looking_begins()
    watched.look(host=9 * GIB, device=8 * GIB)
    watched.memory.looking_begins()
    peaks = watched.memory.peaks([])
    assert (peaks.memory_bytes, peaks.host_bytes) == (3 * GIB, 2 * GIB)


def test_another_measurement_has_none_of_the_peaks_before_an_earlier_diagnosis() -> None:
    watched = Watched(GPU)
    watched.look(host=2 * GIB, device=3 * GIB)
    watched.memory.looking_begins()
    watched.memory.begin_anew(job())
    watched.look(host=1 * GIB, device=2 * GIB)
    peaks = watched.memory.peaks([])
    assert (peaks.memory_bytes, peaks.host_bytes) == (2 * GIB, 1 * GIB)


def test_on_a_device_what_lies_outside_the_allocator_is_added_to_what_is_in_it() -> None:
    report = rank(peak_reserved_bytes=5 * GIB, reserved_bytes=4 * GIB, device_free_bytes=75 * GIB)
    peaks = Watched(GPU).memory.peaks([report])
    assert (peaks.memory_bytes, peaks.outside_allocator_bytes) == (6 * GIB, 1 * GIB)
    unknown = rank(peak_reserved_bytes=5 * GIB)
    assert Watched(GPU, outside_allocator_bytes=2 * GIB).memory.peaks([unknown]).memory_bytes == 7 * GIB


def test_a_validation_on_the_device_that_the_probe_saw_counts() -> None:
    report = rank(peak_reserved_bytes=5 * GIB, reserved_bytes=4 * GIB, device_free_bytes=75 * GIB)
    watched = Watched(GPU, facts=script_facts(validation_bytes=7 * GIB))
    peaks = watched.memory.peaks([report])
    assert (peaks.memory_bytes, peaks.trained_bytes) == (8 * GIB, 6 * GIB)


def test_a_validation_on_the_host_that_the_probe_saw_comes_on_top_of_what_the_trial_holds() -> None:
    facts = script_facts(validation_host_bytes=5 * GIB, validation_host_growth_bytes=3 * GIB)
    for held, expected in ((4 * GIB, 7 * GIB), (1 * GIB, 5 * GIB)):
        watched = Watched(CPU, facts=facts)
        peaks = watched.memory.peaks([rank(held_host_bytes=held)])
        assert (peaks.memory_bytes, peaks.trained_bytes) == (expected, held)
        watched.look(host=8 * GIB)
        assert watched.memory.peaks([rank(held_host_bytes=held)]).memory_bytes == 8 * GIB
    on_device = Watched(GPU, facts=facts).memory.peaks([rank(held_host_bytes=GIB, peak_reserved_bytes=GIB)])
    assert (on_device.host_bytes, on_device.memory_bytes) == (5 * GIB, GIB)


def test_what_larger_batches_left_in_the_probe_is_not_charged_to_smaller_ones() -> None:
    facts = script_facts(validation_host_bytes=5 * GIB, validation_host_growth_bytes=1 * GIB)
    script_settings = Settings(batch_size=64)
    for batch_size, expected in ((64, 5 * GIB), (32, 3 * GIB)):
        job = {"settings": replace(script_settings, batch_size=batch_size), "script_settings": script_settings}
        peaks = Watched(CPU, facts=facts, **job).memory.peaks([rank(held_host_bytes=2 * GIB)])
        assert peaks.memory_bytes == expected


def test_a_trial_that_said_nothing_is_not_charged_with_a_validation() -> None:
    watched = Watched(CPU, facts=script_facts(validation_host_bytes=5 * GIB, validation_host_growth_bytes=3 * GIB))
    watched.look(host=1 * GIB)
    assert watched.memory.peaks([]).memory_bytes == 1 * GIB
    assert watched.memory.peaks([rank()]).memory_bytes == 1 * GIB


def test_where_nobody_saw_anything_there_is_no_peak() -> None:
    for device in (CPU, GPU):
        peaks = Watched(device).memory.peaks([])
        assert (peaks.memory_bytes, peaks.host_bytes) == (None, None)
