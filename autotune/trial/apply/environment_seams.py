"""Settings that are switched once, before the first step: threads, kernels, allocator, copies to the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from autotune.settings import Settings
from autotune.trial.step import channels_last
from autotune.trial.step.roots import Roots
from autotune.trial.torch import allocator, torch_names
from autotune.trial.torch.patching import wrap


def apply_threads(asked: Settings, script_settings: Settings) -> None:
    """Sets torch's threads; the runtime's own variables were set before the process started."""
    if asked.intra_op_threads != script_settings.intra_op_threads:
        torch.set_num_threads(asked.intra_op_threads)
    settle_threads()


def settle_threads() -> None:
    """Fixes the number of threads of the calling thread before the script builds a loader.

    torch answers a thread's first question for good. Left for later, the answer is what the loader's pinning thread has
    set meanwhile for the process, which is 1.
    """
    torch.get_num_threads()


def apply_kernels(asked: Settings, script_settings: Settings, roots: Roots) -> None:
    """Switches cuDNN's search, and prepares every root: memory format, then compilation."""
    if asked.cudnn_benchmark != script_settings.cudnn_benchmark:
        _set_cudnn_benchmark(asked.cudnn_benchmark)
        # The script has set its own in the meantime, long before its model is called.
        roots.prepare.append(lambda _: _set_cudnn_benchmark(asked.cudnn_benchmark))
    if asked.channels_last and not script_settings.channels_last:
        _convert(roots, torch.channels_last)
    if script_settings.channels_last and not asked.channels_last:
        _convert(roots, torch.contiguous_format)
    if asked.compile and not script_settings.compile:
        roots.stops_at_first = True
        roots.prepare.append(torch_names.compile_in_place)


def _set_cudnn_benchmark(is_on: bool) -> None:
    torch.backends.cudnn.benchmark = is_on


def _convert(roots: Roots, memory_format: torch.memory_format) -> None:
    """Puts the weights of every root, and the images that the root is called with, in a memory format."""
    roots.prepare.append(partial(channels_last.convert_weights, memory_format=memory_format))
    roots.convert_inputs = partial(channels_last.convert_input, memory_format=memory_format)


def apply_memory(asked: Settings, cap_fraction: float) -> None:
    """Limits the caching allocator to the smaller of the setting's and the cap's share, when CUDA starts."""
    fraction = min(asked.memory_fraction, cap_fraction)
    if fraction < 1.0:
        allocator.limit_share(fraction)


def apply_transfer(asked: Settings, script_settings: Settings) -> None:
    """Makes copies from page-locked memory to the device return at once; they stay in order on their stream."""
    if asked.non_blocking and not script_settings.non_blocking:
        wrap(torch.Tensor, "to", _to_without_waiting)
        wrap(torch.Tensor, "cuda", _cuda_without_waiting)


def _to_without_waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # Whether memory is page-locked CUDA alone can say, so only copies to CUDA ask: others run before it starts.
        if len(args) <= 1 and tensor.is_cpu and "non_blocking" not in kwargs:
            target = args[0] if args else kwargs.get("device")
            if _is_cuda(target) and tensor.is_pinned():
                kwargs["non_blocking"] = True
        return original(tensor, *args, **kwargs)

    return to


def _cuda_without_waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    def cuda(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if len(args) <= 1 and tensor.is_cpu and "non_blocking" not in kwargs and tensor.is_pinned():
            kwargs["non_blocking"] = True
        return original(tensor, *args, **kwargs)

    return cuda


def _is_cuda(target: object) -> bool:
    """Whether the first argument of `Tensor.to`, or its `device`, is a CUDA device."""
    if isinstance(target, torch.device):
        return target.type == "cuda"
    if isinstance(target, str):
        return target.startswith("cuda")
    if isinstance(target, torch.Tensor):
        return target.is_cuda
    return type(target) is int
