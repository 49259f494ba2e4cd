"""What a trial's result says of what its ranks reported and of what went on around it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.model.result import RankResult
from autotune.model.surroundings import Surroundings
from autotune.protocol.paths import TrialPaths
from autotune.runner.handle import Handle
from autotune.units import GIB
from tests.unit.runner.samples import ending, job, rank


class Ended(Handle):
    """A trial that is over, with these reports of its ranks, in such surroundings."""

    def __init__(self, folder: Path, *ranks: RankResult, surroundings: Surroundings | None = None) -> None:
        self.removed: list[Path] = []
        self._ranks = ranks
        self._job, self._paths, self._scan = job(), TrialPaths(folder), None
        parts: dict[str, Any] = {
            "_home": TrialPaths(folder),
            "_awaits": False,
            "_device": SimpleNamespace(is_cpu=False),
            "memory": SimpleNamespace(device=SimpleNamespace(num_newcomers=2)),
            "_surroundings": SimpleNamespace(found=lambda *, num_strangers: surroundings),
            "_workspace": SimpleNamespace(remove_trial=self.removed.append, protection="layers"),
            "_start": SimpleNamespace(kind="cold", reason="", saved_s=0.0, server_s=0.0, judged=lambda result: None),
        }
        vars(self).update(parts)

    def _collect(self) -> Any:
        return ending(peak_memory_bytes=5 * GIB, peak_host_bytes=GIB, outside_allocator_bytes=7), self._ranks, ""


@pytest.mark.parametrize("is_near", [False, True])
def test_one_rank_that_thrashed_at_the_cap_marks_the_trial(tmp_path: Path, is_near: bool) -> None:
    ranks = (rank(world_size=2), rank(rank=1, world_size=2, is_near_cap=is_near))
    assert Ended(tmp_path, *ranks).result().is_near_cap is is_near


def test_what_changed_the_figure_from_outside_is_written_and_said_with_the_trial(tmp_path: Path) -> None:
    around = Surroundings(window_s=3.0, usable_cpus=4.0, foreign_cpus=2.0, throttle_reasons=("thermal slowdown",))
    result = Ended(tmp_path, rank(), surroundings=around).result()
    assert result.surroundings is around
    assert result.notes == around.disturbances and len(result.notes) == 2
    assert Ended(tmp_path, rank()).result().notes == ()


def test_peaks_and_reports_are_kept_and_the_trials_folder_is_not(tmp_path: Path) -> None:
    ended = Ended(tmp_path, rank())
    result = ended.result()
    assert (result.peak_memory_bytes, result.peak_host_bytes, result.outside_allocator_bytes) == (5 * GIB, GIB, 7)
    assert result.ranks == (rank(),)
    assert ended.removed == [tmp_path]
