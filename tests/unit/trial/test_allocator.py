"""The caching allocator as the trial sees it, on a torch whose CUDA is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autotune.measure.block import Phase
from autotune.settings import Settings
from autotune.trial.apply.environment_seams import apply_memory
from autotune.trial.torch import torch_names
from autotune.trial.torch.allocator import AllocatorWatch, ValidationWatch, limit_share, num_page_locked


class Cuda:
    """One process's CUDA: on or off, with figures that are set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on, self.is_broken, self.device, self.num_devices = True, False, 0, 4
        self.allocated = self.reserved = self.num_retries = 0
        self.fractions: dict[int, float] = {}
        self.host_stats: dict[str, int] = {}
        self.queued: list[Any] = []
        fake: dict[str, Any] = {
            "is_initialized": lambda: self.is_on,
            "max_memory_allocated": lambda: self.allocated,
            "max_memory_reserved": lambda: self.reserved,
            "memory_reserved": lambda: self.reserved,
            "mem_get_info": self._mem_get_info,
            "memory_stats_as_nested_dict": lambda: {"num_alloc_retries": self.num_retries},
            "host_memory_stats_as_nested_dict": lambda: dict(self.host_stats),
            "current_device": lambda: self.device,
            "device_count": lambda: self.num_devices,
            "set_device": lambda device: setattr(self, "device", device),
            "set_per_process_memory_fraction": lambda fraction, index: self.fractions.update({index: fraction}),
            "reset_peak_memory_stats": self._reset,
            "reset_accumulated_memory_stats": lambda: None,
            "synchronize": lambda: None,
            "empty_cache": lambda: None,
        }
        module = SimpleNamespace(
            **fake, memory=SimpleNamespace(reset_peak_memory_stats=fake["reset_peak_memory_stats"])
        )
        monkeypatch.setattr(torch, "cuda", module)
        monkeypatch.setattr(torch_names, "call_when_cuda_starts", self.queued.append)

    def start(self) -> None:
        for action in self.queued:
            action()

    def _mem_get_info(self) -> tuple[int, int]:
        if self.is_broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return 1000, 5000

    def _reset(self) -> None:
        self.allocated = self.reserved = 0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return Cuda(monkeypatch)


def near_cap(cuda: Cuda, *blocks: tuple[Phase, int]) -> bool:
    """Whether so many retries in such blocks are thrashing."""
    watch = AllocatorWatch()
    for phase, num_retries in blocks:
        cuda.num_retries += num_retries
        watch.block_ended(phase)
    return bool(watch.figures()["is_near_cap"])


def test_retries_in_two_blocks_in_a_row_are_thrashing(cuda: Cuda) -> None:
    window = Phase.WINDOW
    assert near_cap(cuda, (window, 0), (window, 1), (window, 2), (window, 0))
    assert not near_cap(cuda, (window, 1), (window, 0), (window, 1))
    assert not near_cap(cuda, (window, 5))


def test_retries_before_the_window_are_none_of_it(cuda: Cuda) -> None:
    assert not near_cap(cuda, (Phase.WARMUP, 3), (Phase.COMPUTE, 3), (Phase.WINDOW, 1), (Phase.WINDOW, 0))


def test_retries_and_memory_of_real_batches_are_told_apart_from_those_of_the_warm_up(cuda: Cuda) -> None:
    watch = AllocatorWatch()
    watch.install()
    cuda.allocated, cuda.reserved, cuda.num_retries = 90, 120, 4
    watch.block_ended(Phase.WARMUP)
    assert watch.figures()["window_allocated_bytes"] is None
    watch.block_ended(Phase.RAMP)
    cuda.allocated, cuda.num_retries = 60, 5
    watch.block_ended(Phase.WINDOW)
    torch.cuda.reset_peak_memory_stats()
    cuda.allocated = 50
    figures = watch.figures()
    assert (figures["window_allocated_bytes"], figures["peak_allocated_bytes"]) == (60, 90)
    assert (figures["num_window_retries"], figures["num_alloc_retries"]) == (1, 5)


def test_the_figures_hold_the_peaks_that_a_script_resets(cuda: Cuda) -> None:
    watch = AllocatorWatch()
    watch.install()
    cuda.allocated, cuda.reserved = 70, 90
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory.reset_peak_memory_stats()
    cuda.allocated, cuda.reserved = 20, 30
    figures = watch.figures()
    assert (figures["peak_allocated_bytes"], figures["peak_reserved_bytes"]) == (70, 90)
    assert (figures["reserved_bytes"], figures["device_free_bytes"]) == (30, 1000)


def test_peaks_of_a_step_that_does_not_count_are_forgotten(cuda: Cuda) -> None:
    watch = AllocatorWatch()
    watch.install()
    cuda.allocated, cuda.reserved = 80, 100
    watch.begin_anew()
    cuda.allocated, cuda.reserved = 30, 40
    figures = watch.figures()
    assert (figures["peak_allocated_bytes"], figures["peak_reserved_bytes"]) == (30, 40)


def test_without_cuda_there_are_no_figures_and_nothing_is_asked(cuda: Cuda) -> None:
    cuda.is_on = False
    cuda.is_broken = True
    watch = AllocatorWatch()
    watch.block_ended(Phase.WINDOW)
    assert watch.figures() == {}


def test_a_device_that_an_error_took_away_gives_no_figures(cuda: Cuda) -> None:
    cuda.is_broken = True
    assert AllocatorWatch().figures() == {}


def test_the_share_is_set_when_cuda_starts_and_on_every_device_taken_later(cuda: Cuda) -> None:
    cuda.is_on = False
    limit_share(0.5)
    assert cuda.fractions == {}
    cuda.start()
    cuda.is_on = True
    assert cuda.fractions == {0: 0.5}
    torch.cuda.set_device(2)
    assert cuda.fractions == {0: 0.5, 2: 0.5}


@pytest.mark.parametrize(
    ("asked", "cap", "share"), [(0.9, 0.5, 0.5), (0.4, 0.5, 0.4), (1.0, 0.5, 0.5), (0.4, 1.0, 0.4)]
)
def test_the_share_in_force_is_the_smaller_of_the_settings_and_the_caps(
    cuda: Cuda, asked: float, cap: float, share: float
) -> None:
    apply_memory(Settings(memory_fraction=asked), cap)
    cuda.start()
    assert cuda.fractions == {0: share}


def test_without_a_cap_and_a_setting_no_share_is_set(cuda: Cuda) -> None:
    apply_memory(Settings(), 1.0)
    assert cuda.queued == []


def test_setting_the_share_is_not_taken_for_the_scripts_own_doing(cuda: Cuda) -> None:
    seen = []
    limit_share(0.5)
    torch.cuda.set_per_process_memory_fraction = lambda fraction, index: seen.append(fraction)
    cuda.start()
    assert (cuda.fractions, seen) == ({0: 0.5}, [])


def test_a_share_that_the_script_sets_afterwards_is_left_for_the_comparison(cuda: Cuda) -> None:
    limit_share(0.5)
    cuda.start()
    torch.cuda.set_per_process_memory_fraction(0.9, 0)
    torch.cuda.set_device(0)
    assert cuda.fractions == {0: 0.9}


@pytest.mark.parametrize(("local_rank", "device"), [("2", 2), ("7", 0), ("x", 0), ("", 0)])
def test_a_rank_is_limited_on_its_own_device_even_where_it_is_not_the_current_one(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, local_rank: str, device: int
) -> None:
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    limit_share(0.5)
    cuda.start()
    assert cuda.fractions == {device: 0.5}


def test_the_peak_of_a_validation_is_told_from_that_of_training(cuda: Cuda) -> None:
    watch, validation = AllocatorWatch(), ValidationWatch()
    watch.install()
    cuda.allocated = cuda.reserved = 90
    validation.called(with_gradients=False)
    validation.called(with_gradients=False)
    cuda.allocated, cuda.reserved = 60, 80
    validation.trains()
    cuda.allocated, cuda.reserved = 70, 85
    assert validation.peak_bytes() == 60
    assert watch.figures()["peak_allocated_bytes"] == 90


def test_a_validation_that_is_still_running_counts_and_none_is_none(cuda: Cuda) -> None:
    validation = ValidationWatch()
    validation.trains()
    assert validation.peak_bytes() is None
    validation.called(with_gradients=False)
    cuda.allocated = 60
    assert validation.peak_bytes() == 60


def test_the_next_call_with_gradients_is_training_already(cuda: Cuda) -> None:
    validation = ValidationWatch()
    validation.called(with_gradients=False)
    cuda.allocated = 60
    validation.called(with_gradients=True)
    cuda.allocated = 90
    validation.trains()
    assert validation.peak_bytes() == 60


def test_on_a_cpu_there_is_no_validation_to_watch(cuda: Cuda) -> None:
    cuda.is_on = False
    validation = ValidationWatch()
    validation.called(with_gradients=False)
    cuda.allocated = 60
    assert validation.peak_bytes() is None


def test_blocks_of_page_locked_memory_are_counted_where_torch_counts_them(cuda: Cuda) -> None:
    assert num_page_locked() is None
    cuda.host_stats = {"num_host_alloc": 7}
    assert num_page_locked() == 7
    cuda.is_on = False
    assert num_page_locked() is None
