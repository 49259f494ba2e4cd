"""Settings of the process, read back from torch: what can be seen is seen, and what cannot is missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autotune.settings import BY_NAME
from autotune.trial.apply.observed import process_settings
from autotune.trial.observed_values import Observed
from autotune.trial.torch import torch_names


def segments(monkeypatch: pytest.MonkeyPatch, snapshot: Any) -> dict[str, Any]:
    """What is in force on CUDA with this record of the allocator's segments."""
    monkeypatch.setattr(torch_names, "is_cuda_on", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", snapshot)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: 0.91234567, raising=False)
    return dict(process_settings("cuda"))


@pytest.mark.parametrize("is_on", [False, True])
def test_segments_that_grow_are_seen_in_the_allocators_record(monkeypatch: pytest.MonkeyPatch, is_on: bool) -> None:
    found = segments(monkeypatch, lambda: [{"is_expandable": False}, {"is_expandable": is_on}])
    assert found["expandable_segments"] is is_on
    assert found["memory_fraction"] == 0.9123


def test_an_allocator_without_a_record_tells_nothing_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[Any]:
        raise RuntimeError("cudaMallocAsync does not yet support snapshot")

    assert "expandable_segments" not in segments(monkeypatch, refuse)
    assert "expandable_segments" not in segments(monkeypatch, list)


def test_nothing_is_asked_of_cuda_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: pytest.fail("CUDA was asked"))
    of_compiler = {"activation_memory_budget"}  # seen once any test has loaded the compiler
    found = process_settings("cpu").keys() - of_compiler
    assert found == {"intra_op_threads", "matmul_precision", "omp_wait_policy", "keep_freed_memory"}


def test_a_later_look_takes_the_place_of_an_earlier_one_with_its_comment() -> None:
    seen, later = Observed(), Observed()
    seen.note("grad_accum_steps", 1, "1, since the script clears its gradients")
    later.note("grad_accum_steps", 2)
    seen.update(later)
    assert (seen.values, seen.comments) == ({"grad_accum_steps": 2}, {})


def test_threads_are_written_and_read_by_the_setting_itself() -> None:
    threads, before = BY_NAME["intra_op_threads"], torch.get_num_threads()
    assert threads.write is not None and threads.read is not None
    try:
        threads.write(1)
        assert threads.read() == 1
    finally:
        threads.write(before)
