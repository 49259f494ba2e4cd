"""Memory of a tree, from a /proc of our own making."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from autotune import process_memory
from autotune.process_memory import held_memory_bytes
from autotune.runner import tree_memory
from autotune.runner.handle import POLL_S
from autotune.runner.tree_memory import (
    COSTLY_EVERY_S,
    NEAR_EVERY_S,
    SHARED_MEMORY_RESERVE,
    SharedMemory,
    TreeMemory,
    num_killed_by_kernel,
    upper_bound_bytes,
)

KIB = 1024


class Proc:
    """Processes with so many KiB, by the cheap and by the costly reading."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, pid: int, *, rss: int, pss: int, private: int = 0, name: bytes = b"python") -> None:
        place = self.folder / str(pid)
        place.mkdir(exist_ok=True)
        status = b"Name:\t%s\nVmRSS:\t%d kB\nRssAnon:\t%d kB\nRssFile:\t999 kB\nRssShmem:\t7 kB\n"
        (place / "status").write_bytes(status % (name, rss + 999, rss - 7))
        rollup = (
            f"00-ff ---p 00 00:00 0 [rollup]\nPss: 999 kB\nPss_Anon: {pss - 3} kB\nPss_File: 99 kB\nPss_Shmem: 3 kB\n"
            f"Private_Dirty: {private} kB\n"
        )
        (place / "smaps_rollup").write_text(rollup)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_of_a_server_that_they_were_forked_from_only_what_they_share_counts(proc: Proc) -> None:
    proc.put(1, rss=100, pss=60)
    proc.put(2, rss=900, pss=500, private=460)
    assert held_memory_bytes([1], proc.folder, servers=[2]) == (60 + 500 - 3 - 460) * KIB
    proc.put(2, rss=900, pss=500, private=600)
    assert held_memory_bytes([1], proc.folder, servers=[2]) == 60 * KIB


def test_anonymous_and_shared_pages_count_and_files_do_not(proc: Proc) -> None:
    proc.put(1, rss=100, pss=60)
    proc.put(2, rss=100, pss=40)
    assert upper_bound_bytes([1, 2], proc.folder) == 200 * KIB
    assert held_memory_bytes([1, 2], proc.folder) == 100 * KIB


def test_a_process_that_is_gone_counts_nothing(proc: Proc) -> None:
    proc.put(1, rss=100, pss=60)
    assert upper_bound_bytes([1, 7], proc.folder) == 100 * KIB
    assert held_memory_bytes([1, 7], proc.folder) == 60 * KIB


def test_pages_of_a_process_that_ends_between_two_readings_do_not_count_twice(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (1, 2, 3):
        proc.put(pid, rss=300, pss=100)
    rollup = process_memory._rollup

    def ends_once_read(process: Path) -> dict[bytes, int]:
        found = rollup(process)
        if process.name == "2" and process.exists():
            shutil.rmtree(process)
            proc.put(1, rss=300, pss=150)
            proc.put(3, rss=300, pss=150)
        return found

    monkeypatch.setattr(process_memory, "_rollup", ends_once_read)
    assert held_memory_bytes([3, 2, 1], proc.folder) == 300 * KIB


def test_the_name_of_a_process_may_be_any_bytes(proc: Proc) -> None:
    proc.put(1, rss=100, pss=60, name=b"\xff\xfe RssAnon:\t5 kB")
    assert upper_bound_bytes([1], proc.folder) == 100 * KIB


def test_where_the_kernel_does_not_say_what_of_a_share_is_anonymous_it_is_the_most_that_it_can_be(proc: Proc) -> None:
    """Kernels before 5.4: their rollup has the share of all pages, and the anonymous ones in full."""
    for pid, pss, anonymous in ((1, 500, 300), (2, 200, 800)):
        proc.put(pid, rss=1000, pss=0)
        rollup = f"00-ff ---p 00 00:00 0 [rollup]\nPss: {pss} kB\nAnonymous: {anonymous} kB\n"
        (proc.folder / str(pid) / "smaps_rollup").write_text(rollup)
    assert held_memory_bytes([1], proc.folder) == (300 + 7) * KIB
    assert held_memory_bytes([2], proc.folder) == (200 + 7) * KIB


def test_where_no_share_can_be_read_all_that_is_resident_counts(proc: Proc) -> None:
    proc.put(1, rss=100, pss=60)
    (proc.folder / "1" / "smaps_rollup").unlink()
    assert held_memory_bytes([1], proc.folder) == 100 * KIB
    (proc.folder / "1" / "status").write_text("Name:\tpython\nVmRSS:\t900 kB\n")
    assert held_memory_bytes([1], proc.folder) == upper_bound_bytes([1], proc.folder) == 900 * KIB
    (proc.folder / "1" / "status").write_text("Name:\tzombie\n")
    assert held_memory_bytes([1], proc.folder) == upper_bound_bytes([1], proc.folder) == 0


def test_what_is_shared_with_a_server_is_not_counted_twice_where_no_share_can_be_read(proc: Proc) -> None:
    for pid in (1, 2):
        proc.put(pid, rss=500, pss=60)
        (proc.folder / str(pid) / "smaps_rollup").unlink()
    assert held_memory_bytes([1], proc.folder, servers=[2]) == 500 * KIB


def test_a_cap_holds_where_no_share_can_be_read(proc: Proc) -> None:
    watched = Watched(proc)
    assert not watched.check(rss=100, pss=0)
    (proc.folder / "1" / "smaps_rollup").unlink()
    watched.time_s = COSTLY_EVERY_S
    (proc.folder / "1" / "status").write_text("Name:\tpython\nVmRSS:\t1100 kB\n")
    assert watched.memory.check([1], is_quiet=True)
    assert watched.memory.peak_bytes == 1100 * KIB


def test_kills_by_the_kernel_are_counted_where_it_says_so(tmp_path: Path) -> None:
    assert num_killed_by_kernel(tmp_path) is None
    (tmp_path / "vmstat").write_text("nr_free_pages 7\noom_kill 3\noom_killer_other 9\n")
    assert num_killed_by_kernel(tmp_path) == 3
    (tmp_path / "vmstat").write_text("nr_free_pages 7\n")
    assert num_killed_by_kernel(tmp_path) is None


def test_a_batch_that_nobody_has_mapped_is_counted_once_by_its_open_file(
    proc: Proc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder on a device of its own, as /dev/shm is; what is open elsewhere is none of it.
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path
    monkeypatch.setattr(process_memory, "SHARED_MEMORY", shared)
    batch = shared / f"test_{tmp_path.name}"
    batch.write_bytes(bytes(400 * KIB))
    try:
        for pid in (1, 2):
            proc.put(pid, rss=100, pss=50)
            descriptors = proc.folder / str(pid) / "fd"
            descriptors.mkdir()
            (descriptors / "3").symlink_to(batch)
            (descriptors / "4").symlink_to("/proc/self/status")
            (descriptors / "5").symlink_to("/nowhere")
        assert held_memory_bytes([1, 2], proc.folder) == (2 * (50 - 3) + 400) * KIB
    finally:
        batch.unlink()


class Watched:
    """A tree of one process under a cap of 1000 KiB, with a clock that is set by hand and 1000 KiB of /dev/shm."""

    def __init__(self, proc: Proc) -> None:
        self.proc, self.time_s, self.shared_free = proc, 0.0, 900
        self.memory = TreeMemory(
            1000 * KIB, now=lambda: self.time_s, proc=proc.folder, shared_memory=self._shared_memory
        )

    def _shared_memory(self, _: Sequence[int]) -> SharedMemory:
        return SharedMemory(total_bytes=1000 * KIB, free_bytes=self.shared_free * KIB)

    def check(self, *, rss: int, pss: int, is_quiet: bool = False) -> bool:
        self.proc.put(1, rss=rss, pss=pss)
        return self.memory.check([1], is_quiet=is_quiet)


def test_a_tree_over_the_cap_is_found_at_the_first_look(proc: Proc) -> None:
    watched = Watched(proc)
    assert watched.check(rss=1200, pss=1001, is_quiet=True)
    assert watched.memory.peak_bytes == 1001 * KIB


def test_shared_pages_that_only_seem_too_much_are_none(proc: Proc) -> None:
    watched = Watched(proc)
    assert not watched.check(rss=4000, pss=1000)
    assert watched.memory.peak_bytes == 1000 * KIB


def test_far_from_the_cap_the_costly_reading_is_rare_and_never_in_the_window(proc: Proc) -> None:
    watched = Watched(proc)
    watched.check(rss=300, pss=100)
    watched.time_s = COSTLY_EVERY_S - 0.1
    watched.check(rss=400, pss=200)
    assert watched.memory.peak_bytes == 100 * KIB
    watched.time_s = 10 * COSTLY_EVERY_S
    watched.check(rss=400, pss=200, is_quiet=True)
    assert watched.memory.peak_bytes == 100 * KIB
    watched.check(rss=400, pss=200)
    assert watched.memory.peak_bytes == 200 * KIB


def test_near_the_cap_it_is_read_in_the_window_too_but_not_at_every_look(proc: Proc) -> None:
    watched = Watched(proc)
    watched.check(rss=900, pss=100, is_quiet=True)
    watched.time_s = NEAR_EVERY_S / 2
    assert not watched.check(rss=1200, pss=1100, is_quiet=True)
    assert watched.memory.peak_bytes == 100 * KIB
    watched.time_s = NEAR_EVERY_S
    assert watched.check(rss=1200, pss=1100, is_quiet=True)


@pytest.mark.parametrize("is_quiet", [False, True])
@pytest.mark.parametrize("rss", [300, 900])
def test_whatever_was_read_before_a_tree_that_goes_over_the_cap_is_found_within_half_a_second(
    proc: Proc, rss: int, is_quiet: bool
) -> None:
    """An over-cap trial is to be ended within a second: its end is asked for at once, and without grace."""
    watched = Watched(proc)
    for look in range(40):
        watched.time_s = look * POLL_S
        assert not watched.check(rss=rss, pss=100, is_quiet=is_quiet)
    went_over_at = watched.time_s
    while not watched.check(rss=1200, pss=1100, is_quiet=is_quiet):
        watched.time_s += POLL_S
        assert watched.time_s - went_over_at < 0.5


def test_the_peak_stays_when_memory_is_given_back(proc: Proc) -> None:
    watched = Watched(proc)
    watched.check(rss=950, pss=800)
    watched.time_s = 5 * COSTLY_EVERY_S
    watched.check(rss=950, pss=300)
    assert watched.memory.peak_bytes == 800 * KIB


def test_shared_memory_that_fills_counts_for_the_cheap_bound(proc: Proc) -> None:
    watched = Watched(proc)
    watched.check(rss=300, pss=100, is_quiet=True)
    watched.time_s = NEAR_EVERY_S
    watched.shared_free = 300
    watched.check(rss=300, pss=250, is_quiet=True)
    assert watched.memory.peak_bytes == 250 * KIB


@pytest.mark.parametrize(("ours", "is_full"), [(880, True), (100, False)])
def test_a_tree_that_fills_shared_memory_is_told_from_others_that_do(
    proc: Proc, monkeypatch: pytest.MonkeyPatch, ours: int, is_full: bool
) -> None:
    monkeypatch.setattr(tree_memory, "open_shared_bytes", lambda pids, proc: ours * KIB)
    watched = Watched(proc)
    watched.check(rss=300, pss=100)
    assert not watched.memory.is_shared_memory_full
    watched.shared_free = int(1000 * SHARED_MEMORY_RESERVE) - 1
    watched.check(rss=300, pss=100)
    assert watched.memory.is_shared_memory_full is is_full


def test_shared_memory_that_was_full_before_is_nobodys_fault(proc: Proc) -> None:
    watched = Watched(proc)
    watched.shared_free = 10
    watched.memory = TreeMemory(1000 * KIB, proc=proc.folder, shared_memory=watched._shared_memory)
    watched.shared_free = 5
    watched.check(rss=300, pss=100)
    assert not watched.memory.is_shared_memory_full
