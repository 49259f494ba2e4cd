"""Decides from an exception that ends the script whether memory was refused."""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path

from autotune.model.result import RaisedError
from autotune.trial.user_frames import is_users

OUT_OF_MEMORY_TEXTS = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "can't allocate memory",
    "unable to allocate shared memory",
    "out of shared memory",
    "Cannot allocate memory",
    "RESOURCE_EXHAUSTED",
    "OOM when allocating",
)
"""Texts of errors about refused memory, from the sources of torch, of TensorFlow, of XLA and of their libraries."""
HOST_MEMORY_TEXTS = (
    "can't allocate memory",
    "unable to allocate shared memory",
    "out of shared memory",
    "Cannot allocate memory",
)
"""Texts about the host's memory or shared memory, not the device's memory."""
OUT_OF_MEMORY_KINDS = ("OutOfMemoryError", "MemoryError")
SUSPECT_TEXTS = ("CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_SUPPORTED", "CUDNN_STATUS_INTERNAL_ERROR")
"""Texts that mean refused memory only when the device is nearly full."""
NEARLY_FULL = 0.9
MAX_MESSAGE_CHARS = 2000
_REQUESTED = re.compile(r"Tried to allocate ([0-9.]+) (KiB|MiB|GiB)|you tried to allocate ([0-9]+) bytes")
_UNIT_BYTES = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def describe(error: BaseException) -> RaisedError:
    """The exception as data, with kind, message, place, and whether memory was refused."""
    kind, message = type(error).__name__, str(error)
    if _is_of_a_spawned_rank(error):
        # Of an error in a spawned rank only the text of the traceback is left.
        kind, _, message = message.strip().rpartition("\n")[2].partition(": ")
    message = message[:MAX_MESSAGE_CHARS]
    refusals = [cause for cause in _chain(error) if _is_out_of_memory(cause)]
    return RaisedError(
        kind=kind,
        message=message,
        is_out_of_memory=bool(refusals),
        is_host_memory=any(_is_about_the_host(cause) for cause in refusals),
        requested_bytes=_requested_bytes(message),
        place=_place(error),
    )


def _place(error: BaseException) -> str:
    """`file:line` of the innermost frame outside autotune, torch and the standard library; empty without such a frame.

    The path of a file begins at the package, or below the working directory for the script's own files.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    name, line = next(((name, line) for name, line in reversed(frames) if is_users(name)), ("", 0))
    if not name:
        return ""
    for folder in ("/site-packages/", "/dist-packages/", f"{Path.cwd()}/"):
        name = name.rpartition(folder)[2]
    return f"{name}:{line}"


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


def _is_out_of_memory(error: BaseException) -> bool:
    if _is_torchs(error) or isinstance(error, MemoryError):
        return True
    text = str(error)
    if _is_of_a_spawned_rank(error):
        return any(part in text for part in (*OUT_OF_MEMORY_TEXTS, *OUT_OF_MEMORY_KINDS))
    if not isinstance(error, (RuntimeError, OSError)) and "ResourceExhausted" not in type(error).__name__:
        return False
    if any(part in text for part in OUT_OF_MEMORY_TEXTS):
        return True
    return any(part in text for part in SUSPECT_TEXTS) and _is_device_nearly_full()


def _is_about_the_host(error: BaseException) -> bool:
    text = str(error)
    if _is_torchs(error) or "OutOfMemoryError" in text:
        return False
    is_spawned = _is_of_a_spawned_rank(error) and "MemoryError" in text
    return is_spawned or isinstance(error, MemoryError) or any(part in text for part in HOST_MEMORY_TEXTS)


def _is_torchs(error: BaseException) -> bool:
    """Whether torch has refused device memory; False in a process without torch."""
    if "torch" not in sys.modules:
        return False
    from autotune.trial.torch import torch_names

    return isinstance(error, torch_names.OUT_OF_MEMORY)


def _is_of_a_spawned_rank(error: BaseException) -> bool:
    """Whether the error holds the text of a traceback in a rank spawned by torch."""
    spawn = sys.modules.get("torch.multiprocessing.spawn")
    return spawn is not None and isinstance(error, spawn.ProcessRaisedException)


def _is_device_nearly_full() -> bool:
    if "torch" not in sys.modules:
        return False
    import torch

    from autotune.trial.torch import torch_names

    if not torch_names.is_cuda_on():
        return False
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return free_bytes < (1 - NEARLY_FULL) * total_bytes


def _requested_bytes(message: str) -> int | None:
    match = _REQUESTED.search(message)
    if match is None:
        return None
    return int(match[3]) if match[3] else int(float(match[1]) * _UNIT_BYTES[match[2]])
