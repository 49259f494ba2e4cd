"""The private names of torch that this room uses, each checked on import, with what happens without it.

Everything else in `trial/` is built on public names. Read in torch 2.4 to 2.13.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils.data import _utils, dataloader

ITERATOR: Any = getattr(dataloader, "_BaseDataLoaderIter", None)
"""Base of the loader's iterators, whose `__next__` is a step's boundary. Without it the loader is not seen: the script
counts as one without a DataLoader."""

SHUTDOWN_WORKERS = "_shutdown_workers"
_WORKERS_ITERATOR: Any = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)
WORKERS_ITERATOR: Any = _WORKERS_ITERATOR if hasattr(_WORKERS_ITERATOR, SHUTDOWN_WORKERS) else None
"""The iterator that has workers, and ends them in SHUTDOWN_WORKERS. Without it there is no gate, since workers that
wait at one would have to be killed, and the measurement is marked `primed`."""

_WORKER: Any = getattr(_utils, "worker", None)
WORKER_LOOP = "_worker_loop"
WORKER_MODULE: Any = _WORKER if hasattr(_WORKER, WORKER_LOOP) else None
"""The module whose WORKER_LOOP is all that a loader's worker runs. Without it seams stay attached in workers."""

OUT_OF_MEMORY: Any = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
"""torch's own out-of-memory error, which had its older name alone up to torch 2.4."""


DISPATCH_MODE: Any = getattr(_python_dispatch, "TorchDispatchMode", None)
"""Base of contexts that are told of every operation with the operands that its kernel gets. Without it the number
format is read from the output of one layer."""


def fetchers() -> tuple[Any, ...]:
    """The classes whose `fetch` builds a batch, in worker and main process; empty where torch has moved them.

    Without them there is no gate, and the measurement is marked `primed`.
    """
    try:
        from torch.utils.data._utils import fetch
    except ImportError:
        return ()
    classes = tuple(getattr(fetch, name, None) for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"))
    return classes if all(hasattr(cls, "fetch") for cls in classes) else ()


def is_map_fetcher(fetcher: Any) -> bool:
    """Whether it builds batches out of samples asked for by index, of which any list can be asked."""
    classes = fetchers()
    return bool(classes) and isinstance(fetcher, classes[0]) and getattr(fetcher, "auto_collation", False)


HAS_CALL_SLOT = hasattr(torch.nn.Module, "_compiled_call_impl") and hasattr(torch.nn.Module, "_call_impl")
"""Whether a module has the slot that `Module.compile()` fills: a wrapper for one root, no hook on the hot path.
Without it a forward pre-hook is used, and `compile` is refused."""


def outer_call(module: Any) -> Any:
    """What `module(...)` calls: the compiled call where there is one."""
    return module._compiled_call_impl or module._call_impl


def own_call(module: Any) -> Any:
    """What `set_outer_call` replaces: None where a module is called as it is."""
    return module._compiled_call_impl


def set_outer_call(module: Any, call: Any) -> None:
    """Makes `module(...)` call `call`."""
    module._compiled_call_impl = call


_compiled_roots: weakref.WeakSet[Any] = weakref.WeakSet()


def compile_in_place(module: Any) -> None:
    """Compiles a module in place, as `module.compile()` does, whatever its class, and remembers it.

    torch's compiler skips the files of torch.nn: a root of one of its own classes, such as a Sequential, would be left
    uncompiled in silence. It enters there from a function of somebody else's.
    """
    if not HAS_CALL_SLOT:
        module.compile()
        return
    inner = module._call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    module._compiled_call_impl = torch.compile(call)
    _compiled_roots.add(module)


def leave_uncompiled(code: Any) -> None:
    """Makes torch's compiler run the function of this code as it is, and go on with what that calls.

    Nothing where torch has no way to say so: such a function is compiled with those that call it, and slower for it.
    """
    try:
        from torch._C._dynamo import eval_frame
    except ImportError:
        return
    if hasattr(eval_frame, "set_code_exec_strategy"):
        action = eval_frame._FrameAction
        eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT))
    elif hasattr(eval_frame, "skip_code"):
        eval_frame.skip_code(code)


def num_compiled_graphs() -> int | None:
    """Graphs that torch's compiler has built in this process; None where it does not say."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    return int(counters["stats"]["unique_graphs"]) if counters is not None else None


def is_compiled(module: Any) -> bool:
    """Whether a root runs through torch.compile: compiled here, or an OptimizedModule of the script's own."""
    return module in _compiled_roots or type(module).__name__ == "OptimizedModule"


def call_when_cuda_starts(action: Any) -> bool:
    """Queues an action for the moment when the script initialises CUDA; False where torch has no such queue."""
    lazy_call = getattr(torch.cuda, "_lazy_call", None)
    if lazy_call is None:
        return False
    lazy_call(action)
    return True


def is_cuda_on() -> bool:
    """Whether this process has initialised CUDA; never initialises it."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def is_cuda_lost() -> bool:
    """Whether CUDA cannot be used in this forked process, because its parent had asked the driver for devices."""
    is_in_bad_fork = getattr(torch.cuda, "_is_in_bad_fork", None)
    return bool(is_in_bad_fork()) if is_in_bad_fork is not None else False


def is_in_backward() -> bool:
    """Whether this thread runs a backward pass, in which a checkpoint calls parts of the model again.

    False where torch does not say.
    """
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def allows_tf32() -> bool:
    """Whether fp32 matrix products may run on TF32 units, in whichever of torch's two ways the script says so.

    Since torch 2.9 there is `fp32_precision`, which follows the older switches; these raise once it was set itself.
    """
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return precision == "tf32" if precision is not None else torch.get_float32_matmul_precision() != "highest"


BATCH_NORM: Any = getattr(torch.nn.modules.batchnorm, "_BatchNorm", torch.nn.BatchNorm2d)
"""Base of all layers whose statistics change with the batch; without it only those of images are counted."""


def is_enabled(region: Any) -> bool:
    """Whether an autocast region is more than an empty one; True where torch does not say."""
    return bool(getattr(region, "_enabled", True))
