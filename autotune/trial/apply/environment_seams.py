"""Switches settings once, before the first step: threads, kernels, allocator, copies to the device."""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch

from autotune.settings import SETTINGS, Group, Settings, graph_kind
from autotune.trial.apply.model_seams import MODEL_SEAMS
from autotune.trial.step.roots import Roots
from autotune.trial.torch import allocator
from autotune.trial.torch.patching import wrap

LARGEST_ADAPTING_BYTES = (32 << 20) - (64 << 10)
"""Size of a block that moves the C library's rule as far as any block does; its limit is 32 MiB on 64-bit systems."""


def apply_threads(asked: Settings, script_settings: Settings) -> None:
    """Sets torch's threads; the runtime's own variables were set before the process started."""
    _write(Group.THREADS, asked, script_settings)
    settle_threads()


def settle_threads() -> None:
    """Fixes the number of threads of the calling thread before the script builds a loader.

    torch answers a thread's first question for good. Left for later, the answer is what the loader's pinning thread has
    set meanwhile for the process, which is 1.
    """
    torch.get_num_threads()


def adapt_to_large_blocks() -> None:
    """Brings the C library's rule to its state after a large block was freed; no effect on a rule set by hand.

    The GNU C library adapts: from then on it keeps blocks up to that size, and twice as much at the heap's end
    (`M_MMAP_THRESHOLD` in mallopt(3)). A validation on batches of 100 did that to a training on batches of 4. Its first
    epoch asked for 606,000 pages and took 2.5 s; every later epoch for 5,000, in 1.9 s.
    """
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.free(ctypes.c_void_p(library.malloc(ctypes.c_size_t(LARGEST_ADAPTING_BYTES))))


def apply_kernels(
    asked: Settings, script_settings: Settings, roots: Roots, *, keeps_graphs: bool = False, sizes_vary: bool = False
) -> None:
    """Sets torch's switches for kernels, and prepares every root.

    Args:
        asked: The settings to put in force.
        script_settings: The script's own settings.
        roots: Find the models.
        keeps_graphs: Whether compiled models are kept for later measurements of this process.
        sizes_vary: Whether batches differ in size.
    """
    _write(Group.KERNELS, asked, script_settings, roots)
    for name, seam in MODEL_SEAMS.items():
        is_on, was_on = getattr(asked, name), getattr(script_settings, name)
        action: Callable[..., None] | None = seam.action(asked) if is_on else seam.undo
        if is_on == was_on or action is None:
            continue
        if is_on and keeps_graphs and seam.has_graph:
            action = partial(action, kind=graph_kind(asked))
        if is_on and seam.has_graph:
            # Another micro-batch in the same process is a second size, for which the compiler would build any size.
            is_static = keeps_graphs and asked.batch_size != script_settings.batch_size and not sizes_vary
            action = partial(action, is_dynamic=False if is_static else sizes_vary or None)
        roots.prepare.append(action)
        roots.convert_inputs = (seam.input_on if is_on else seam.input_off) or roots.convert_inputs
        roots.stops_at_first = roots.stops_at_first or seam.is_for_one_root


def take_back_kernels(asked: Settings, script_settings: Settings, models: Iterable[torch.nn.Module]) -> None:
    """Returns the process and the models to the script's own settings, after `apply_kernels`."""
    _write(Group.KERNELS, script_settings, asked)
    for model in models:
        for name, seam in MODEL_SEAMS.items():
            is_on, was_on = getattr(asked, name), getattr(script_settings, name)
            action = (seam.undo or seam.forget) if is_on else seam.apply
            if is_on != was_on and action is not None:
                action(model)


def take_back_threads(asked: Settings, script_settings: Settings) -> None:
    """Returns torch to the script's own threads, after `apply_threads`."""
    _write(Group.THREADS, script_settings, asked)


def _write(group: Group, asked: Settings, script_settings: Settings, roots: Roots | None = None) -> None:
    """Puts a group's switches of the process in force."""
    for setting in SETTINGS:
        value = getattr(asked, setting.name)
        if setting.group is not group or setting.write is None or setting.name in asked.inert:
            continue
        if value == getattr(script_settings, setting.name):
            continue
        setting.write(value)
        if setting.is_written_again and roots is not None:
            write_again = partial(_write_again, setting.write, value)
            roots.prepare.append(write_again)


def _write_again(write: Callable[[Any], None], value: Any, _: torch.nn.Module) -> None:
    write(value)


def apply_memory(asked: Settings, cap_fraction: float) -> Callable[[], None] | None:
    """Limits the caching allocator to the smaller of the setting's and the cap's share, when CUDA starts.

    Returns:
        The way back; None without a limit.
    """
    fraction = min(asked.memory_fraction, cap_fraction)
    return allocator.limit_share(fraction) if fraction < 1.0 else None


def apply_transfer(asked: Settings, script_settings: Settings) -> CopyCount | None:
    """Makes copies from page-locked memory to the device return at once; the copies stay in order on their stream.

    Returns:
        The number of such copies; None where the setting is the script's own.
    """
    if not asked.non_blocking or script_settings.non_blocking:
        return None
    count = CopyCount()
    wrap(torch.Tensor, "to", count.to_without_waiting)
    wrap(torch.Tensor, "cuda", count.cuda_without_waiting)
    return count


def set_variable(name: str, value: int) -> bool:
    """Changes a variable of the main module; False before the script has set the variable."""
    variables = vars(sys.modules["__main__"])
    if name not in variables:
        return False
    variables[name] = value
    return True


def apply_ranks(changes: Mapping[str, Any], prepare: Callable[..., None] | None = None) -> None:
    """Changes every DistributedDataParallel built from now on.

    Args:
        changes: Arguments of the constructor, by name.
        prepare: Changes the model's memory format before the constructor lays out the buckets like the weights. A
            later change would leave gradients in the old format, which fused optimizers on CUDA refuse.
    """
    ddp = torch.nn.parallel.DistributedDataParallel
    signature = inspect.signature(ddp.__init__)

    def with_changes(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(model, *args, **kwargs)
            bound.arguments.update(changes)
            if prepare is not None:
                prepare(bound.arguments["module"])
            original(*bound.args, **bound.kwargs)

        return init

    wrap(ddp, "__init__", with_changes)


class CopyCount:
    """Counts copies made without waiting by the seams."""

    def __init__(self) -> None:
        self.num_copies = 0

    def to_without_waiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor.to` with copies from page-locked memory to CUDA that return at once."""

        def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            # The question for page-locked memory starts CUDA, so only copies to CUDA ask.
            if len(args) <= 1 and tensor.is_cpu and "non_blocking" not in kwargs:
                target = args[0] if args else kwargs.get("device")
                if _is_cuda(target) and tensor.is_pinned():
                    kwargs["non_blocking"] = True
                    self.num_copies += 1
            return original(tensor, *args, **kwargs)

        return to

    def cuda_without_waiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor.cuda` of the same kind."""

        def cuda(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if len(args) <= 1 and tensor.is_cpu and "non_blocking" not in kwargs and tensor.is_pinned():
                kwargs["non_blocking"] = True
                self.num_copies += 1
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
