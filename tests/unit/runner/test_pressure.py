"""Counters of load, from files of our own making."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.runner import pressure
from autotune.runner.pressure import TICKS_PER_S


def stat(*cpus: tuple[int, int], running: int = 3) -> str:
    """/proc/stat with (busy, idle) ticks for every core."""
    lines = [f"cpu{n} {busy} 0 0 {idle} 9 0 0 0 0 0" for n, (busy, idle) in enumerate(cpus)]
    return "\n".join(["cpu 1 2 3 4", *lines, "intr 5", f"procs_running {running}", "procs_blocked 0"]) + "\n"


def test_pressure_is_the_time_in_which_somebody_waited(tmp_path: Path) -> None:
    assert pressure.pressure_s("cpu", tmp_path) is None
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text(
        "some avg10=47.25 avg60=21.75 avg300=7.91 total=5215174025\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    )
    assert pressure.pressure_s("cpu", tmp_path) == pytest.approx(5215.174025)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("nr_periods 10\nnr_throttled 4\nthrottled_usec 1500000\n", 1.5),
        ("nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000\n", 2.5),
        ("usage_usec 10\n", None),
    ],
)
def test_the_quotas_holdups_are_counted_in_both_versions_of_cgroups(
    tmp_path: Path, text: str, seconds: float | None
) -> None:
    (tmp_path / "cpu.stat").write_text(text)
    assert pressure.throttled_s([tmp_path, tmp_path / "gone"]) == seconds


def test_of_nested_groups_the_one_that_is_held_up_most_counts(tmp_path: Path) -> None:
    for name, text in (("inner", "throttled_usec 1000000"), ("outer", "throttled_usec 4000000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.stat").write_text(text)
    assert pressure.throttled_s([tmp_path / "inner", tmp_path / "outer"]) == 4.0


def test_busy_time_is_that_of_the_cores_that_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(stat((3 * TICKS_PER_S, 5), (7 * TICKS_PER_S, 5), (9 * TICKS_PER_S, 5)))
    assert pressure.busy_s(frozenset({0, 2}), tmp_path) == 12.0
    assert pressure.busy_s(frozenset({8}), tmp_path) is None
    assert pressure.busy_s(frozenset({0}), tmp_path / "gone") is None


def test_running_tasks_come_with_the_cores_of_the_machine(tmp_path: Path) -> None:
    assert pressure.num_running(tmp_path) is None
    (tmp_path / "stat").write_text(stat((1, 1), (1, 1), running=5))
    assert pressure.num_running(tmp_path) == (5, 2)


def test_the_trees_own_time_and_what_it_read_are_summed_and_the_dead_are_left_out(tmp_path: Path) -> None:
    for pid, ticks, num_bytes in ((7, 100, 4096), (8, 50, 1)):
        (tmp_path / str(pid)).mkdir()
        fields = ["S", *["0"] * 10, *[str(ticks)] * 4, "20"]
        (tmp_path / str(pid) / "stat").write_bytes(b"%d (a) b) %s\n" % (pid, " ".join(fields).encode()))
        (tmp_path / str(pid) / "io").write_text(f"rchar: 9\nread_bytes: {num_bytes}\nwrite_bytes: 5\n")
    counters = pressure.read_counters([7, 8, 9], 12.5, tmp_path)
    assert counters.ours_s == pytest.approx(600 / TICKS_PER_S)
    assert counters.storage_read_bytes == 4097
    assert counters.at_s == 12.5
    assert counters.busy_s is None and counters.cpu_pressure_s is None


def test_this_process_is_read_from_the_real_files() -> None:
    import os

    counters = pressure.read_counters([os.getpid()], 0.0)
    assert counters.ours_s > 0
    assert counters.busy_s is None or counters.busy_s > 0


def test_the_page_cache_is_what_the_kernel_calls_cached(tmp_path: Path) -> None:
    assert pressure.page_cache_bytes(tmp_path) is None
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nCached: 40 kB\nSwapCached: 7 kB\n")
    assert pressure.page_cache_bytes(tmp_path) == 40 * 1024
