"""Questions about a device that only CUDA can answer: the settings matter there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from autotune.trial.seam import CUDA_STARTERS, Seam


class StartedError(Exception):
    """CUDA was about to start."""


@pytest.mark.parametrize(
    "asks",
    [
        lambda: torch.cuda.get_device_name(0),
        lambda: torch.cuda.get_device_capability(0),
        lambda: torch.cuda.get_device_properties(0),
        lambda: torch.cuda.mem_get_info(0),
        lambda: torch.cuda.current_device(),
        lambda: torch.cuda.get_rng_state(0),
        lambda: torch.cuda.set_per_process_memory_fraction(0.5),
        lambda: torch.cuda.synchronize(),
    ],
    ids=["name", "capability", "properties", "memory", "current device", "generator", "fraction", "synchronize"],
)
def test_a_question_that_starts_cuda_is_a_place_where_settings_matter(
    monkeypatch: pytest.MonkeyPatch, asks: Callable[[], object]
) -> None:
    def start() -> None:
        raise StartedError

    for owner in CUDA_STARTERS:
        monkeypatch.setattr(owner, "_lazy_init", start)
    places: list[str] = []
    Seam(places.append).install()
    with pytest.raises(StartedError):
        asks()
    assert len(places) == 1 and places[0].endswith("where CUDA starts")
