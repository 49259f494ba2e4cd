"""Exceptions as data: whether memory was refused, and whose."""

from __future__ import annotations

import pytest
import torch
from torch.multiprocessing.spawn import ProcessRaisedException

from autotune.trial.report.failure import describe


@pytest.mark.parametrize(
    ("error", "is_host"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), False),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 512 bytes."), True),
        (RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left (28)"), True),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
                      "workers are out of shared memory."), True),
        (OSError(12, "Cannot allocate memory"), True),
        (ProcessRaisedException("\n\n-- Process 1 ...\ntorch.OutOfMemoryError: CUDA out of memory.", 1, 7), False),
        (ProcessRaisedException("\n\n-- Process 1 ...\nMemoryError: ", 1, 7), True),
    ],
)  # fmt: skip
def test_refused_memory_is_told_from_other_errors_and_whose_it_is(error: BaseException, is_host: bool) -> None:
    described = describe(error)
    assert described.is_out_of_memory
    assert described.is_host_memory is is_host


@pytest.mark.parametrize("error", [ValueError("no such column"), RuntimeError("CUDA error: illegal memory access")])
def test_other_errors_are_none_of_memory(error: BaseException) -> None:
    described = describe(error)
    assert not described.is_out_of_memory
    assert not described.is_host_memory


def test_a_refusal_that_another_error_hides_is_still_one() -> None:
    try:
        try:
            raise MemoryError
        except MemoryError as cause:
            raise ValueError("the batch could not be built") from cause
    except ValueError as error:
        described = describe(error)
    assert (described.kind, described.is_out_of_memory, described.is_host_memory) == ("ValueError", True, True)


@pytest.mark.parametrize(
    ("message", "num_bytes"),
    [
        ("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0", 3 << 29),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 512 bytes.", 512),
        ("CUDA out of memory.", None),
    ],
)
def test_what_was_asked_for_is_read_from_the_message(message: str, num_bytes: int | None) -> None:
    assert describe(RuntimeError(message)).requested_bytes == num_bytes
