"""Holds all private names of torch that `trial/` uses, each with a check on import and a fallback.

The names were read in the sources of torch 2.4 to 2.13.
"""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils.data import _utils, dataloader

from autotune.settings.repeated_blocks import shape_of_block
from autotune.trial.torch.patching import original_of

ITERATOR: Any = getattr(dataloader, "_BaseDataLoaderIter", None)
"""Base class of the loader's iterators; the `__next__` of an iterator is the boundary of a step. Without the name no
loader is found, as in a script without a DataLoader."""


def batch_iterator(iterator: Any) -> Any:
    """The iterator of torch's class within the iterator of a loader, often the same object; None without one.

    The loaders of PyTorch Geometric wrap torch's iterator in another object, which works on each batch.
    """
    if ITERATOR is None or isinstance(iterator, ITERATOR):
        return iterator
    return next((value for value in getattr(iterator, "__dict__", {}).values() if isinstance(value, ITERATOR)), None)


SHUTDOWN_WORKERS = "_shutdown_workers"
_WORKERS_ITERATOR: Any = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)
WORKERS_ITERATOR: Any = _WORKERS_ITERATOR if hasattr(_WORKERS_ITERATOR, SHUTDOWN_WORKERS) else None
"""The iterator with workers; its method SHUTDOWN_WORKERS ends the workers. Without the name there is no gate, since
workers that wait at a gate would have to be killed, and the measurement is marked `primed`."""

PERSISTENT_ITERATOR = "_iterator"
"""Attribute of a loader with the iterator whose workers live on between epochs; None before the first epoch."""

_WORKER: Any = getattr(_utils, "worker", None)
WORKER_LOOP = "_worker_loop"
WORKER_MODULE: Any = _WORKER if hasattr(_WORKER, WORKER_LOOP) else None
"""The module with WORKER_LOOP, the main function of a loader's worker. Without the name seams stay attached in workers.
"""

OUT_OF_MEMORY: Any = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
"""torch's own out-of-memory error; up to torch 2.4 the error had only the name in `torch.cuda`."""


DISPATCH_MODE: Any = getattr(_python_dispatch, "TorchDispatchMode", None)
"""Base class of contexts that see every operation with the operands of the kernel. Without the name the number format
is read from the output of one layer."""


def share_of(tensor: Any) -> Any:
    """The part of a tensor that this rank holds: of a tensor sharded by `fully_shard`, its own share."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


FSDP_CLASSES = frozenset(("FSDPModule", "FullyShardedDataParallel"))
"""Names of the classes of modules whose weights are shared out: by `fully_shard`, and by the older wrapper."""


def is_sharded(model: Any) -> bool:
    """Whether each rank holds a share of the weights only, by `fully_shard` or FullyShardedDataParallel."""
    return any(cls.__name__ in FSDP_CLASSES for module in model.modules() for cls in type(module).__mro__)


UNINITIALIZED: Any = getattr(torch.nn.parameter, "UninitializedTensorMixin", None)
"""Base class of the parameters and buffers of lazy modules before their first call."""


def past_uninitialized(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of a method of `torch.Tensor` that leaves the parameters of lazy modules to the original.

    Such a parameter refuses each method that is not in torch's own list of methods, and a wrapper is not in the list.
    """
    if UNINITIALIZED is None:
        return wrapper

    def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(tensor, UNINITIALIZED):
            return wrapper(tensor, *args, **kwargs)
        kind: Any = type(tensor)
        return super(UNINITIALIZED, kind).__torch_function__(original, (kind,), (tensor, *args), kwargs)

    return call


def scripts_as(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper of one of torch's functions, which `torch.jit.script` and torch's compiler replace by the original.

    TorchScript reads the original's source by itself, but looks the names in the source up beside the wrapper.
    """
    vars(wrapper).update({"__script_if_tracing_wrapper": True, "__original_fn": original})
    return wrapper


def function_mode() -> Any:
    """The innermost context that sees all calls of torch's functions; None without a context, or without the name."""
    current = getattr(torch.overrides, "_get_current_function_mode", None)
    return current() if current is not None else None


def num_flops(operation: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Floating point operations of an operator's call, by torch's formulas; 0 without a formula."""
    try:
        from torch.utils.flop_counter import flop_registry

        formula = flop_registry.get(operation.overloadpacket)
        return int(formula(*args, **kwargs, out_val=result)) if formula is not None else 0
    except (ImportError, AttributeError, TypeError, ValueError, IndexError, AssertionError):
        return 0  # A formula does not know these arguments.


def fetchers() -> tuple[Any, ...]:
    """The classes with a `fetch` that builds a batch, in workers and main process; empty when torch has moved a class.

    Without the classes there is no gate, and the measurement is marked `primed`.
    """
    try:
        from torch.utils.data._utils import fetch
    except ImportError:
        return ()
    classes = tuple(getattr(fetch, name, None) for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"))
    return classes if all(hasattr(cls, "fetch") for cls in classes) else ()


def is_map_fetcher(fetcher: Any) -> bool:
    """Whether a fetcher builds a batch from any given list of sample indices."""
    classes = fetchers()
    return bool(classes) and isinstance(fetcher, classes[0]) and getattr(fetcher, "auto_collation", False)


HAS_CALL_SLOT = hasattr(torch.nn.Module, "_compiled_call_impl") and hasattr(torch.nn.Module, "_call_impl")
"""Whether a module has the slot that `Module.compile()` fills. A wrapper in the slot of a root keeps hooks off the hot
path. Without the slot a forward pre-hook is used, and `compile` is refused."""


class SlotCall:
    """A function for the slot of a module; copies of the module, and the module's stored form, have an empty slot.

    torch leaves the slot out of both. A class with a `__getstate__` of its own, such as Lightning's LightningModule,
    does not: a copy would call the original, and a function defined in another is not to be stored.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the function."""
        return self._call(*args, **kwargs)

    def __reduce__(self) -> Any:
        return type(None), ()


def outer_call(module: Any) -> Any:
    """The function that `module(...)` calls: the compiled call of a compiled module, otherwise the plain call."""
    return module._compiled_call_impl or module._call_impl


def own_call(module: Any) -> Any:
    """The content of the module's slot, for `set_outer_call` to restore; None for a plain call."""
    return module._compiled_call_impl


def set_outer_call(module: Any, call: Any) -> None:
    """Makes `module(...)` call `call`; None = the plain call.

    A wrapper such as Lightning Fabric's sets attributes on the wrapped module too, where the call would call itself.
    """
    object.__setattr__(module, "_compiled_call_impl", call)


def put_hook_back(module: Any, handle: Any, hook: Callable[..., Any]) -> None:
    """Puts a removed forward hook back on a module.

    The compiler knows a hook by a number, so the hook gets the old number. A torch without numbers adds a new hook.
    """
    hooks, number = getattr(module, "_forward_hooks", None), getattr(handle, "id", None)
    if hooks is None or number is None:
        module.register_forward_hook(hook)
    else:
        hooks[number] = hook


_compiled_roots: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Modes of the compiled roots."""
_compiled_blocks: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()
"""Blocks of the roots that are compiled by blocks."""
_compiled_calls: weakref.WeakKeyDictionary[Any, dict[Hashable, Any]] = weakref.WeakKeyDictionary()
"""Compiled calls of each root or block by the graph's kind, kept for a return to earlier settings."""


def compile_in_place(
    module: Any, kind: Hashable = None, compile_mode: str = "default", *, is_dynamic: bool | None = None
) -> None:
    """Compiles a module of any class in place, as `module.compile()` does, and remembers the module.

    torch's compiler skips frames in the files of torch.nn, so `compile()` silently leaves a root such as a Sequential
    uncompiled. The compiler does enter a root that is called from a function outside torch.

    Args:
        module: The root.
        kind: Everything that changes the graph. A kind met before gets the earlier compiled call; None keeps no call,
            and the process may free the module.
        compile_mode: Mode of torch.compile.
        is_dynamic: True = the first graph serves all sizes. Otherwise the second size costs a second build, in the
            middle of a measurement. False = a graph for each size, in a process that has measured another size.
            None = the compiler's own choice.
    """
    if HAS_CALL_SLOT:
        codes = codes_to_compile(f"call_{len(_compiled_calls.get(module, ()))}")
        _set_compiled(module, codes, kind, compile_mode, is_dynamic=is_dynamic)
    else:
        module.compile(**compile_arguments(compile_mode, is_dynamic=is_dynamic))
    _compiled_roots[module] = str(compile_mode)


def compile_blocks(
    module: Any,
    blocks: Sequence[Any],
    kind: Hashable = None,
    compile_mode: str = "regional",
    *,
    is_dynamic: bool | None = None,
) -> None:
    """Compiles the repeated blocks of a root in place, from the root's second call on.

    Blocks of a shape share a code object, and the compiler builds a single graph for the shape. With one code object
    for blocks of several shapes, the compiler would build graphs of any size, which take minutes. The first call stays
    uncompiled, to read the number format of matrix products: read within a graph, the block read would differ from
    the rest of the shape.

    Args:
        module: The root.
        blocks: Modules inside of the root.
        kind: As for `compile_in_place`.
        compile_mode: Name of the mode, for the reading.
        is_dynamic: As for `compile_in_place`.
    """
    _compiled_roots[module] = str(compile_mode)
    _compiled_blocks[module] = tuple(blocks)
    codes: dict[Hashable, tuple[CodeType, CodeType]] = {}

    def compile_all(*_: Any) -> None:
        handle.remove()
        if module not in _compiled_blocks:
            return  # The root runs uncompiled again.
        for block in blocks:
            number = len(_compiled_calls.get(block, ()))
            name = f"call_{type(block).__name__}_{number}_{len(codes)}"
            of_shape = codes.setdefault(shape_of_block(block), codes_to_compile(name))
            _set_compiled(block, of_shape, kind, is_dynamic=is_dynamic)

    handle = module.register_forward_hook(compile_all)


MODES_WITHOUT_TIMING = {"max-autotune": "reduce-overhead", "max-autotune-no-cudagraphs": "default"}
"""Modes for smaller batches, by the mode of the model: rare batches do not repay the minutes of timing kernels."""


def _set_compiled(
    module: Any,
    codes: tuple[CodeType, CodeType],
    kind: Hashable,
    compile_mode: str = "default",
    *,
    is_dynamic: bool | None,
) -> None:
    """Makes `module(...)` run compiled, by the earlier compiled call of a known kind."""
    calls = _compiled_calls.get(module, {})
    if kind is not None and not _can_tell_kinds():
        _reset_for(kind, module)
    compiled = calls.get(kind)
    if compiled is None:
        # The plain function: a wrapper of ours notes the calls of the script.
        compile_plainly = original_of(torch.compile)
        usual, smaller = (function_to_compile(module._call_impl, code) for code in codes)

        def compile_smaller() -> Any:
            mode = MODES_WITHOUT_TIMING.get(str(compile_mode), compile_mode)
            arguments = compile_arguments(mode, is_dynamic=is_dynamic)
            return compile_plainly(smaller, **_arguments_of_kind(arguments, (kind, "smaller")))

        arguments = compile_arguments(compile_mode, is_dynamic=is_dynamic)
        if kind is not None:
            arguments = _arguments_of_kind(arguments, kind)
        compiled = compile_plainly(usual, **arguments)
        if not is_dynamic:
            compiled = CallBySize(compiled, compile_smaller)
        calls[kind] = compiled
    if kind is not None:
        _compiled_calls[module] = calls
    set_outer_call(module, SlotCall(compiled))


class CallBySize:
    """A compiled call for training, with another compiled call for smaller batches, such as the last one of an epoch.

    The compiler builds a graph of any size for a second size, and from then on runs that graph for the first size too.
    GPT-2 under the HF Trainer took 226 samples per second on an H100 in its first epoch. The last batch of the epoch
    held the training up for 52 s, and from then on the training took 191.

    The first call with gradients shows the usual size. The compiler decides alone in three cases: a later batch is
    larger than the first; sizes differ in several dimensions; or a torch without `KIND_OPTION` breaks the graph.
    """

    def __init__(self, usual: Callable[..., Any], compile_smaller: Callable[[], Callable[..., Any]]) -> None:
        self._usual, self._compile_smaller = usual, compile_smaller
        self._smaller: Callable[..., Any] | None = None
        self._shape: tuple[int, ...] | None = None
        """Shape of the input in the first call with gradients."""
        self._varies = False
        """Whether a shape was neither the usual one nor smaller in one dimension."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the call for batches of this size."""
        shape = None if self._varies or not torch.is_grad_enabled() else _shape_of_input(args, kwargs)
        if shape is None or shape == self._shape:
            return self._usual(*args, **kwargs)
        if self._shape is None:
            result = self._usual(*args, **kwargs)
            self._shape = shape
            return result
        if not is_smaller(shape, self._shape):
            self._varies = True
            return self._usual(*args, **kwargs)
        if self._smaller is None:
            self._smaller = self._compile_smaller()
        return self._smaller(*args, **kwargs)


def _shape_of_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...] | None:
    """The shape of the first tensor among the arguments, also within a mapping; None without any, or if nested."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return None if value.is_nested else value.shape
        if isinstance(value, Mapping):
            found = _shape_of_input(tuple(value.values()), {})
            if found is not None:
                return found
    return None


def is_smaller(shape: tuple[int, ...], usual: tuple[int, ...]) -> bool:
    """True when exactly one dimension of a shape differs from the usual shape, and is smaller."""
    if len(shape) != len(usual):
        return False
    changed = [(size, usual_size) for size, usual_size in zip(shape, usual, strict=True) if size != usual_size]
    return len(changed) == 1 and changed[0][0] < changed[0][1]


def compile_arguments(compile_mode: str, *, is_dynamic: bool | None) -> dict[str, Any]:
    """Arguments of torch.compile for a mode, and for one graph of all sizes or a graph for each."""
    arguments: dict[str, Any] = {} if compile_mode == "default" else {"mode": str(compile_mode)}
    if is_dynamic is not None:
        arguments["dynamic"] = is_dynamic
    return arguments


KIND_OPTION = "trace.debug_dir"
"""Option of torch.compile that tells kinds of graph apart. The option names a folder for the compiler's debug output,
which only a user switches on. Names of stored graphs do not contain the option."""
_kinds: dict[Hashable, int] = {}
"""Numbers of the kinds compiled in this process."""
GRAPHS_PER_KIND = 2
"""Graphs of a function that a further kind may build beside the script's own limit."""
_limits: dict[str, tuple[int, int]] = {}
"""The script's own limit on the graphs of a function, and the limit in force, by the name of the limit."""


@functools.cache
def _can_tell_kinds() -> bool:
    """Whether torch.compile takes `KIND_OPTION`; false of releases that compare its type with the type of None."""
    try:
        original_of(torch.compile)(function_to_compile(None), options={KIND_OPTION: ""})
    except (RuntimeError, TypeError, AttributeError):
        return False
    return True


def _arguments_of_kind(arguments: dict[str, Any], kind: Hashable) -> dict[str, Any]:
    """Arguments of torch.compile for a kind of graph that shares no graph with other kinds.

    The compiler keeps graphs by the code of a function. Within DistributedDataParallel, and after a break of the graph,
    the function is one of torch or of the script, and all kinds share the function. The graph of one kind would serve
    another kind, since the compiler does not compare every setting, for instance the kernel of attention. The compiler
    does compare the options.
    """
    number = _kinds.setdefault(kind, len(_kinds))
    _widen_limits(len(_kinds))
    if not _can_tell_kinds():
        return arguments
    mode = arguments.get("mode")
    of_mode = importlib.import_module("torch._inductor").list_mode_options(mode) if mode is not None else {}
    options = {**of_mode, KIND_OPTION: f"kind_{number}"}
    others = {name: value for name, value in arguments.items() if name != "mode"}
    return {**others, "options": options}


def _widen_limits(num_kinds: int) -> None:
    """Allows a function the graphs of all kinds, beside the limit that the script has set."""
    config = importlib.import_module("torch._dynamo").config
    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(config, name):
            now = getattr(config, name)
            own, widened = _limits.get(name, (now, now))
            own = own if now == widened else now  # The script has set another limit since.
            _limits[name] = own, own + GRAPHS_PER_KIND * (num_kinds - 1)
            setattr(config, name, _limits[name][1])
            return


_latest_kind: list[Hashable] = []
"""The kind compiled last, in a release that cannot tell kinds apart."""


def _reset_for(kind: Hashable, module: Any) -> None:
    """Forgets all graphs, if the last kind was another and could share graphs with this one."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    is_shared = bool(counters.get("graph_break")) or isinstance(module, torch.nn.parallel.DistributedDataParallel)
    if is_shared and _latest_kind and _latest_kind != [kind]:
        torch.compiler.reset()
    _latest_kind[:] = [kind]


def codes_to_compile(name: str) -> tuple[CodeType, CodeType]:
    """Codes of functions for `function_to_compile`: for batches of the usual size, and for smaller batches.

    The compiler counts graphs, and learns varying sizes, by a function's code and name. Without a code of its own for
    each kind, a second batch size would be compiled for any size, and the ninth kind not at all.
    """
    code: CodeType = function_to_compile(None).__code__
    return code.replace(co_name=name), code.replace(co_name=f"{name}_smaller")


def function_to_compile(inner: Any, code: CodeType | None = None) -> Any:
    """A function that calls `inner`, for the compiler to enter; with a code of its own, if given."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return call if code is None else FunctionType(code, call.__globals__, code.co_name, None, call.__closure__)


def forget_compiled(module: Any) -> None:
    """Notes that a module runs uncompiled again; the compiled calls are kept."""
    _compiled_roots.pop(module, None)
    for block in _compiled_blocks.pop(module, ()):
        set_outer_call(block, None)


def leave_uncompiled(code: Any) -> None:
    """Makes torch's compiler run the function of this code uncompiled, and still compile the functions called within.

    Does nothing in a torch without a switch for this; torch then compiles the function too, and calls are slower.
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


TAG_MARK = "autotune:"
"""Beginning of our part of the tag on stored graphs; the part before is the script's own."""


def tag_stored_graphs(kind: str) -> None:
    """Keeps the graphs that torch's compiler stores apart by kind, in the process from now on.

    The key of a stored graph knows neither the kernels permitted to scaled_dot_product_attention (torch's issue 185449)
    nor, before torch 2.13, the format of an autocast region (its pull request 181564). Without a tag a model would run
    a graph stored for other settings. A torch without tags stores no such graph from now on.

    Args:
        kind: All that distinguishes the graphs; empty for graphs that the script could have stored by itself.
    """
    config: Any = getattr(torch.compiler, "config", None)
    if hasattr(config, "cache_key_tag"):
        own = str(config.cache_key_tag).partition(TAG_MARK)[0]
        config.cache_key_tag = f"{own}{TAG_MARK}{kind}" if kind else own
    elif kind:
        from torch._functorch import config as functorch_config

        if hasattr(functorch_config, "enable_autograd_cache"):
            functorch_config.enable_autograd_cache = False


def num_compiled_graphs() -> int | None:
    """Graphs that torch's compiler has built in this process; None when torch keeps no count."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    return int(counters["stats"]["unique_graphs"]) if counters is not None else None


def compile_mode(module: Any) -> str | None:
    """The mode of a root compiled by us, as a whole or by blocks; None for other modules."""
    return _compiled_roots.get(module)


def is_compiled(module: Any) -> bool:
    """Whether a root runs through torch.compile, compiled by us or as the script's own OptimizedModule."""
    return module in _compiled_roots or type(module).__name__ == "OptimizedModule"


def call_when_cuda_starts(action: Any) -> bool:
    """Queues an action until the script initialises CUDA; False when torch has no queue for this."""
    lazy_call = getattr(torch.cuda, "_lazy_call", None)
    if lazy_call is None:
        return False
    lazy_call(action)
    return True


COMPILER_THREADS = ("InductorSubproc", "subproc_worker_timer")
"""Names of the compiler's own threads, beside the threads of `compiler_threads`."""


def compiler_threads() -> frozenset[Any]:
    """The threads in which torch's compiler builds kernels; empty before the first compilation.

    Also empty when torch has moved its pools: the threads then count as the script's.
    """
    compiler = getattr(sys.modules.get("torch._inductor.async_compile"), "AsyncCompile", None)
    found: set[Any] = set()
    for name in ("pool", "process_pool"):
        pool = getattr(compiler, name, None)
        cache_info = getattr(pool, "cache_info", None)
        if pool is not None and cache_info is not None and cache_info().currsize:
            made = pool()
            # Before torch 2.6 the thread that reads from the processes has no name of the compiler's.
            found |= {*getattr(made, "_threads", ()), getattr(made, "read_thread", None)}
    return frozenset(found - {None})


def is_cuda_on() -> bool:
    """Whether this process has initialised CUDA; never initialises it."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def free_workspaces() -> int | None:
    """Frees the workspaces of CUDA's libraries, and gives back the freed bytes; None without CUDA or torch's name."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is None or not is_cuda_on():
        return None
    try:
        before = torch.cuda.memory_allocated()
        clear()
        return max(0, before - torch.cuda.memory_allocated())
    except RuntimeError:
        return None  # The device was lost.


def is_cuda_lost() -> bool:
    """Whether this forked process cannot use CUDA, because its parent had asked the driver for devices."""
    is_in_bad_fork = getattr(torch.cuda, "_is_in_bad_fork", None)
    return bool(is_in_bad_fork()) if is_in_bad_fork is not None else False


def is_traced() -> bool:
    """Whether `torch.jit.trace` runs the model in this thread, as TensorBoard's `add_graph` does."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]


def takes_saved_tensor_hooks() -> bool:
    """Whether this thread may enter hooks of saved tensors; False within `torch.func.grad` and its kin."""
    is_enabled = getattr(getattr(torch._C, "_autograd", None), "_saved_tensors_hooks_is_enabled", None)
    return is_enabled is None or bool(is_enabled())


def is_in_backward() -> bool:
    """Whether this thread runs a backward pass, where a checkpoint calls parts of the model again.

    False when torch offers no name for this.
    """
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def allows_tf32() -> bool:
    """Whether fp32 matrix products may run on TF32 units, by the new or the old switch of torch.

    `fp32_precision`, new in torch 2.9, follows the older switches. Reading an older switch raises once the script has
    set `fp32_precision` itself.
    """
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return precision == "tf32" if precision is not None else torch.get_float32_matmul_precision() != "highest"


def accuracy_of_products() -> str:
    """The older switch for fp32 matrix products; torch's default once the script has set the newer switch itself."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "highest"


BATCH_NORM: Any = getattr(torch.nn.modules.batchnorm, "_BatchNorm", torch.nn.BatchNorm2d)
"""Base class of all layers with statistics of the batch; without the name only BatchNorm2d layers are counted."""


def enable_scaler(scaler: Any, *, is_on: bool) -> None:
    """Makes a GradScaler scale, or return losses and step as without a scaler; the scale is kept."""
    scaler._enabled = is_on


def is_enabled(region: Any) -> bool:
    """Whether an autocast region changes the number format; True when torch does not say."""
    return bool(getattr(region, "_enabled", True))
