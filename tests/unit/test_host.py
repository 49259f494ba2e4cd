"""What is free on a machine, from files of our own making."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune import host

GIB = 1 << 30


def group(folder: Path, *, version: int, limit: str, used: int, files: int) -> Path:
    """A cgroup of either version with such a limit, of which so much is used, files among it."""
    folder.mkdir()
    names = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}[version]
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    prefix = "total_" if version == 1 else ""
    stat = f"anon 5\n{prefix}active_file {files // 2}\n{prefix}inactive_file {files // 2}\nbad line of five words\n"
    (folder / "memory.stat").write_text(("inactive_file 7\n" if version == 1 else "") + stat)
    return folder


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_leaves_what_its_limit_leaves_and_files_can_be_dropped(tmp_path: Path, version: int) -> None:
    folder = group(tmp_path / "a", version=version, limit=str(16 * GIB), used=10 * GIB, files=2 * GIB)
    assert host.cgroup_room_bytes([folder]) == 8 * GIB


@pytest.mark.parametrize("limit", ["max", str((1 << 63) - 4096)])
def test_without_a_limit_a_container_leaves_all(tmp_path: Path, limit: str) -> None:
    folder = group(tmp_path / "a", version=2, limit=limit, used=10 * GIB, files=0)
    assert host.cgroup_room_bytes([folder, tmp_path / "gone"]) is None


def test_of_nested_groups_the_one_that_leaves_least_counts(tmp_path: Path) -> None:
    outer = group(tmp_path / "outer", version=2, limit=str(16 * GIB), used=15 * GIB, files=0)
    inner = group(tmp_path / "inner", version=2, limit=str(8 * GIB), used=1 * GIB, files=0)
    assert host.cgroup_room_bytes([inner, outer]) == 1 * GIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    folder = group(tmp_path / "a", version=2, limit=str(GIB), used=2 * GIB, files=0)
    assert host.cgroup_room_bytes([folder]) == 0


def test_what_is_available_is_the_least_of_the_machines_and_the_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "total_memory_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(host, "meminfo_bytes", lambda name: 40 * GIB)
    monkeypatch.setattr(host, "cgroup_room_bytes", lambda: 8 * GIB)
    assert host.available_memory_bytes() == 8 * GIB
    monkeypatch.setattr(host, "cgroup_room_bytes", lambda: None)
    assert host.available_memory_bytes() == 40 * GIB
    monkeypatch.setattr(host, "meminfo_bytes", lambda name: None)
    assert host.available_memory_bytes() == 32 * GIB


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor : 0\nflags\t\t: fpu avx512f avx512_bf16\n", True),
        ("processor : 0\nflags\t\t: fpu avx512f avx512bw\n", False),
        ("processor : 0\nFeatures\t: fp asimd bf16\n", True),
        ("processor : 0\n", False),
    ],
)
def test_products_in_bf16_are_known_by_the_processors_flags(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert host.has_bf16_instructions(tmp_path) is expected


def test_without_a_word_from_the_kernel_no_products_in_bf16_are_expected(tmp_path: Path) -> None:
    assert not host.has_bf16_instructions(tmp_path)
