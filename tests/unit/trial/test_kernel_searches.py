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


def test_images_in_lists_and_mappings_count_and_token_ids_and_boxes_do_not(searches: KernelSearches) -> None:
    for step in range(60):
        image = torch.empty(2, 3, 64 + 32 * (step // 10 % 2), 64, device="meta")
        ids = torch.empty(2, 8, 20 + step, device="meta", dtype=torch.long)
        searches.note([{"images": [image], "ids": ids}, torch.empty(step, 6, device="meta")])
    assert searches.num == 1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_a_shape_are_left_alone(searches: KernelSearches) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3, 4), torch.ones(3, 3, 4)])
    for _ in range(10):
        searches.note([nested])
    assert searches.num == 0


def test_sizes_met_under_the_same_settings_before_are_not_searched_again(searches: KernelSearches) -> None:
    sizes = [size for size in (640, 480, 512) for _ in range(10)]
    for settings, num in (("own", 2), ("other", 2), ("own", 0), ("other", 0)):
        searches.begin(settings)
        assert call(searches, sizes)[-1] == num


def test_sizes_that_do_not_come_again_are_how_the_script_trains(searches: KernelSearches) -> None:
    assert call(searches, range(100, 300))[-1] == 0


def test_more_sizes_than_a_script_resizes_to_are_how_the_script_trains(searches: KernelSearches) -> None:
    counts = call(searches, [size for size in range(100, 200) for _ in range(10)])
    assert counts[-1] == MOST_SIZES - 1


def test_nothing_is_searched_without_the_benchmark(searches: KernelSearches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    assert call(searches, [size for size in (640, 480) for _ in range(10)])[-1] == 0
