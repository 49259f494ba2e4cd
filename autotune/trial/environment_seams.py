"""Settings that are switched once, before the first step: threads, kernels, allocator, copies to the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autotune.settings import Settings
from autotune.trial import allocator, channels_last, torch_names
from autotune.trial.patching import wrap
from autotune.trial.roots import Roots


def apply_threads(asked: Settings, natural: Settings) -> None:
    """Sets torch's threads; the runtime's own variables were set before the process started."""
    if asked.intra_op_threads != natural.intra_op_threads:
        torch.set_num_threads(asked.intra_op_threads)
    # The first question settles it for this thread. Left for later, the answer is what the loader's pinning thread has
    # set meanwhile for the process, which is 1.
    torch.get_num_threads()


def apply_kernels(asked: Settings, natural: Settings, roots: Roots) -> None:
    """Switches cuDNN's search on, and prepares every root: memory format, then compilation."""
    if asked.cudnn_benchmark and not natural.cudnn_benchmark:
        torch.backends.cudnn.benchmark = True
    if asked.channels_last and not natural.channels_last:
        roots.prepare.append(channels_last.convert_weights)
        roots.convert_inputs = channels_last.convert_input
    if asked.compile and not natural.compile:
        roots.stops_at_first = True
        roots.prepare.append(torch_names.compile_in_place)


def apply_memory(asked: Settings, cap_fraction: float) -> None:
    """Limits the caching allocator to the smaller of the setting's and the cap's share, when CUDA starts."""
    fraction = min(asked.memory_fraction, cap_fraction)
    if fraction < 1.0:
        allocator.limit_share(fraction)


def apply_transfer(asked: Settings, natural: Settings) -> None:
    """Makes copies from page-locked memory to the device return at once; they stay in order on their stream."""
    if asked.non_blocking and not natural.non_blocking:
        wrap(torch.Tensor, "to", _without_waiting)
        wrap(torch.Tensor, "cuda", _without_waiting)


def _without_waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if len(args) <= 1 and "non_blocking" not in kwargs and tensor.device.type == "cpu" and tensor.is_pinned():
            kwargs["non_blocking"] = True
        return original(tensor, *args, **kwargs)

    return to
