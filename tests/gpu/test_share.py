"""The least memory that a search finds on a CUDA device, and a run in no more beside a neighbour with all the rest."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.host import DeviceInfo
from autotune.units import MIB, format_bytes
from tests.gpu.bench import SCRIPTS, note
from tests.gpu.sharing import measured

pytestmark = pytest.mark.gpu

OPTIONS = ("--time", "150s", "--trials", "2")
SHARED_S = 25.0


@pytest.fixture(scope="module")
def figures(device: DeviceInfo) -> Iterator[dict[str, Any]]:
    """A short search, a run alone, and a run with --share."""
    root = Path(tempfile.mkdtemp(prefix="share-")).resolve()
    script = Path(shutil.copy(SCRIPTS / "varies.py", root))
    (root / "kept").mkdir()
    yield measured(script, root / "kept", SHARED_S, *OPTIONS)
    shutil.rmtree(root, ignore_errors=True)


def test_the_least_memory_with_the_full_rate_is_measured_after_the_finals(figures: dict[str, Any]) -> None:
    memory = figures["search"]["memory"]
    first, *others = memory["looks"]
    for look in memory["looks"]:
        limit, rate = format_bytes(look["limit_bytes"]), look["samples_per_second"]
        note(f"winner in {limit}, {look['num_retries']} retries", f"{rate and round(rate)} a second, {look['outcome']}")
    note("time of all looks", f"{sum(look['wall_s'] for look in memory['looks']):.1f} s")
    note("least memory, shared, whole process", ", ".join(map(format_bytes, _sizes(memory))))
    assert memory["is_measured"], memory["reason"]
    assert others and memory["smallest_bytes"] < first["limit_bytes"]
    kept = [look for look in memory["looks"] if look["keeps_rate"]]
    assert memory["smallest_bytes"] == min(look["limit_bytes"] for look in kept)
    assert memory["shared_bytes"] >= memory["smallest_bytes"]


def _sizes(memory: dict[str, Any]) -> list[int]:
    return [memory["smallest_bytes"], memory["shared_bytes"], memory["reserved_bytes"]]


def test_a_run_that_shares_trains_at_full_rate_beside_a_neighbour_with_all_the_rest(figures: dict[str, Any]) -> None:
    memory, alone, shared = figures["search"]["memory"], figures["alone"], figures["shared"]
    note("left by the neighbour, taken by the run", f"{figures['left_bytes'] >> 20}, {shared['peak_bytes'] >> 20} MiB")
    note("rate alone, shared", f"{alone['samples_per_second']}, {shared['samples_per_second']} a second")
    assert alone["exit_code"] == 0, alone["said"]
    assert shared["exit_code"] == 0, shared["said"]
    assert shared["peak_bytes"] <= memory["reserved_bytes"] + 128 * MIB
    assert shared["samples_per_second"] > 0.9 * alone["samples_per_second"]
