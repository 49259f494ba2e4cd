"""Counts of cuDNN's searches, with calls recorded from scripts; nothing is searched here."""

from collections.abc import Iterable

import pytest
import torch

from autotune.trial.torch.kernel_searches import MOST_SIZES, KernelSearches


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> KernelSearches:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    return KernelSearches()


def call(searches: KernelSearches, sizes: Iterable[int]) -> list[int]:
    counts = []
    for size in sizes:
        searches.note([torch.empty(2, 3, size, size, device="meta"), "no tensor"])
        counts.append(searches.num)
    return counts


def test_each_new_size_of_images_resized_every_tenth_step_counts_once(searches: KernelSearches) -> None:
    sizes = [640, 480, 800, 640, 480, 512]
    counts = call(searches, [size for size in sizes for _ in range(10)])
    assert counts[::10] == [0, 1, 2, 2, 2, 3], "the first size of all belongs to the warm-up"


def test_sizes_that_do_not_come_again_are_how_the_script_trains(searches: KernelSearches) -> None:
    assert call(searches, range(100, 300))[-1] == 0


def test_more_sizes_than_a_script_resizes_to_are_how_the_script_trains(searches: KernelSearches) -> None:
    counts = call(searches, [size for size in range(100, 200) for _ in range(10)])
    assert counts[-1] == MOST_SIZES - 1


def test_nothing_is_searched_without_the_benchmark(searches: KernelSearches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    assert call(searches, [size for size in (640, 480) for _ in range(10)])[-1] == 0
