"""Where the settings of a trial begin to matter to its script, and where they do not yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils.data import DataLoader

from autotune.trial.start.early_seams import Prelude
from autotune.trial.start.prelude_end import CUDA_STARTERS, Seam
from autotune.trial.start.prepared_start import PreparedSession
from tests.unit.runner.test_prelude_server import job


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


@pytest.fixture
def places() -> Iterator[list[str]]:
    """Where a seam that is attached finds that settings matter."""
    found: list[str] = []
    seam = Seam(found.append)
    seam.install()
    yield found
    for restore in seam._restore:
        restore()


def build_a_loader() -> None:
    DataLoader([1, 2])  # type: ignore[arg-type]


def call_a_model() -> None:
    torch.nn.Linear(2, 2)(torch.zeros(1, 2))


def go_backward() -> None:
    (torch.ones(2, requires_grad=True) * 2).sum().backward()


def enter_a_region() -> None:
    with torch.autocast("cpu"):
        pass


@pytest.mark.parametrize(
    ("does", "what"),
    [
        (build_a_loader, "a DataLoader is built"),
        (call_a_model, "a model is called"),
        (go_backward, "gradients are computed"),
        (enter_a_region, "an autocast region begins"),
    ],
)
def test_settings_matter_from_what_they_may_change_on_and_once(
    places: list[str], does: Callable[[], None], what: str
) -> None:
    does()
    does()
    (place,) = places
    assert place.startswith("test_prelude_end.py:") and place.endswith(f", where {what}")


def call_without_gradients() -> None:
    with torch.no_grad():
        call_a_model()


def call_a_loss() -> None:
    torch.nn.MSELoss()(torch.zeros(2), torch.zeros(2))


@pytest.mark.parametrize("does", [call_without_gradients, call_a_loss, lambda: torch.nn.Linear(2, 2)])
def test_what_a_dataset_does_with_a_model_and_a_loss_on_their_own_are_no_such_places(
    places: list[str], does: Callable[[], None]
) -> None:
    does()
    assert places == []


def test_a_helper_process_of_the_script_comes_to_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[str] = []
    seam = Seam(places.append)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    seam.reach("a model is called")
    assert places == []


def test_an_optimizer_that_steps_and_a_script_that_asks_for_settings_are_such_places() -> None:
    for reach, what in (
        (lambda session: session._step(None, lambda: 3), "an optimizer steps"),
        (lambda session: session.settings, "autotune.load asks for the settings"),
    ):
        session = PreparedSession(job(), Prelude(), "")
        places: list[str] = []
        session._seam = Seam(places.append)
        assert reach(session) in ((3, True), None)
        assert len(places) == 1 and places[0].endswith(f", where {what}")
