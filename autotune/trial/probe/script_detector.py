"""Watches a run of the script under the script's own settings, and makes facts for the search; measures nothing."""

from __future__ import annotations

import math
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from autotune.model.facts import ArgumentFacts, LoaderFacts, LossReduction, ScriptFacts
from autotune.settings import BY_NAME, Group, Precision, Value
from autotune.settings.ddp_group import ARGUMENTS
from autotune.settings.matmul_precision import MatmulPrecision
from autotune.settings.optimizer_form import OptimizerForm, forms_of_all
from autotune.settings.repeated_blocks import num_shapes, repeated_blocks
from autotune.settings.sdpa_backend import SdpaBackend
from autotune.trial.apply.environment_seams import adapt_to_large_blocks, settle_threads
from autotune.trial.apply.observed import settings_in_force
from autotune.trial.loader.foreign_batches import ForeignBatches
from autotune.trial.loader.loaders import Loaders
from autotune.trial.probe.accumulation_variable import accumulation_variable
from autotune.trial.probe.arguments import ArgumentDetector
from autotune.trial.probe.batch_statistics import BatchStatistics
from autotune.trial.probe.batch_uses import OLD, BatchUses
from autotune.trial.probe.imports import (
    early_environment,
    imported_after_freeze,
    imported_modules,
    installed_modules,
    launcher_sets_threads,
)
from autotune.trial.probe.loader_detector import LoaderDetector, usual_growth
from autotune.trial.probe.main_module import is_guarded
from autotune.trial.probe.root_calls import RootCalls
from autotune.trial.probe.saved_activations import SavedActivations
from autotune.trial.start.known_devices import ask
from autotune.trial.step import schedulers
from autotune.trial.step.gradients import bytes_of, gradient_norm, state_bytes
from autotune.trial.step.loss_targets import LossTargets
from autotune.trial.step.memory_format import CONVOLUTIONS
from autotune.trial.step.operand_formats import OperandDetector
from autotune.trial.step.replicas import device_numbers, num_replicas
from autotune.trial.step.roots import Roots, is_of_class, weights_of
from autotune.trial.step.script_compiler import ScriptCompiler
from autotune.trial.step.steps import Steps, parameters_of
from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import leading_size
from autotune.trial.torch.patching import wrap

NUM_STEPS = 6
"""Optimizer steps of a probe: the first initialises, the rest give the duration of a step."""
LONG_STEPS, LONG_S = 3, 4.0
"""Number of steps and duration after which a script with long steps has shown how long a step takes. Six steps of
nanoGPT took 7 s of a search of two minutes, and differed by 3 %."""
LATE_S = 20.0
"""Duration of as many steps that ends a probe whatever is still unclear."""
BY_HAND_BACKWARDS = 12
"""Backward passes without a torch optimizer after which the script counts as a script with updates by hand."""
UNUSED_OPTIMIZER_BACKWARDS = 256
"""The same limit with an optimizer that never steps: no script accumulates over so many passes."""
FIRST_LOSSES = 64


class ScriptDetector:
    """Watches the script's seams, and makes ScriptFacts of the observations."""

    def __init__(self, *, loaders: Loaders, steps: Steps, roots: Roots, started_at: float, num_steps: int) -> None:
        self.first_losses: list[float] = []
        self.claims: set[Group] = set()
        self.knobs: dict[str, str] = {}
        self._steps, self._roots = steps, roots
        self._started_at, self._num_steps = started_at, num_steps
        self._compiler = ScriptCompiler()
        self.batch_uses = BatchUses(lambda: self._compiler.is_used)
        self._loaders = LoaderDetector(loaders, steps, self.batch_uses)
        self._foreign = ForeignBatches(lambda num_samples, wait_s: None)
        self._arguments = ArgumentDetector()
        self._operands = OperandDetector(lambda: self._compiler.is_used)
        self._saved = SavedActivations(lambda: self._compiler.is_used)
        self._calls = RootCalls(steps)
        self._input_size: int | None = None
        """Samples in the first call of the model, for a script without a loader."""
        self._loss_targets = LossTargets()
        self._statistics = BatchStatistics()
        self._seen: set[str] = set()
        self._thread_setters: set[int] = set()
        """Threads that set the number of threads; torch keeps the number per thread."""
        self._autocast_dtypes: set[str] = set()
        self._step_ends: list[float] = []
        self._evaluated: set[int] = set()
        """Numbers of the steps before which the model ran without gradients."""
        self._pages: list[int] = []
        """Pages that the process had asked the system for by the end of every step."""
        self._backward_ends: list[float] = []
        self._backwards_at_steps: list[int] = []
        self._scheduler_steps: Counter[int] = Counter()
        self._grad_norm: float | None = None
        self._early_environment = early_environment()

    def attach(self) -> None:
        """Attaches to all calls that decide about tuning; before the seams are installed."""
        self._loaders.attach(self._arguments.built)
        self._arguments.attach()
        self._steps.on_backward.append(self._backward)
        self._steps.on_step.append(self._step)
        self._roots.around_first += [self._operands.look, self._saved.look]
        self._roots.prepare.append(self._calls.attach)
        self._roots.compiles = lambda: self._compiler.is_used
        self._roots.on_first_inputs = self._note_inputs
        self._roots.is_before_training = lambda: not self._steps.num_backwards
        self._loss_targets.install()
        self.batch_uses.install()
        wrap(torch, "set_num_threads", self._wrap_set_threads)
        settle_threads()
        self._compiler.install()
        self._watch(torch.cuda, "set_per_process_memory_fraction", "memory_fraction")
        wrap(torch.amp.autocast, "__enter__", self._wrap_autocast)
        wrap(torch.amp.GradScaler, "__init__", self._wrap_scaler)
        schedulers.wrap_steps(self._wrap_scheduler_step)

    @property
    def has_seen_enough(self) -> bool:
        """Whether the probe may end after this step."""
        num_steps = len(self._step_ends)
        if num_steps == 0:
            enough = UNUSED_OPTIMIZER_BACKWARDS if self._steps.has_optimizer else BY_HAND_BACKWARDS
            return self._steps.num_backwards >= enough
        known_s = self._step_ends[-1] - self._step_ends[0] if num_steps >= LONG_STEPS else 0.0
        is_unclear = self._num_steps == NUM_STEPS and self._loaders.may_keep_first_batch
        # Two old batches, still alive, show a script that keeps batches.
        is_known = num_steps > OLD or not self.has_batches
        is_enough = num_steps >= self._num_steps or (known_s > LONG_S and is_known)
        return known_s > LATE_S or (is_enough and not is_unclear)

    @property
    def has_batches(self) -> bool:
        """Whether a loader has fed a backward pass."""
        return self._loaders.num_training() > 0 or bool(self._foreign.library)

    def _watch(self, owner: Any, name: str, what: str) -> None:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self._seen.add(what)
                return original(*args, **kwargs)

            return call

        wrap(owner, name, make)

    def _wrap_set_threads(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_num_threads(*args: Any) -> None:
            self._thread_setters.add(threading.get_ident())
            original(*args)

        return set_num_threads

    def _sets_threads(self) -> bool:
        """Whether the script has set torch's number of threads in the main thread, or in the training thread.

        torch keeps the number per thread: the loader sets 1 in the pinning thread.
        """
        counting = {threading.main_thread().ident, self._steps.thread}
        return not self._thread_setters.isdisjoint(counting)

    def _wrap_autocast(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(region: Any) -> Any:
            if torch_names.is_enabled(region) and torch.is_grad_enabled():
                self._autocast_dtypes.add(str(region.fast_dtype).removeprefix("torch."))
            return original(region)

        return enter

    def _wrap_scaler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            if scaler.is_enabled():
                self._seen.add("grad_scaler")

        return init

    def _wrap_scheduler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._step_ends:
                self._scheduler_steps[id(scheduler)] += 1
            return original(scheduler, *args, **kwargs)

        return step

    def _backward(self, loss: torch.Tensor | None) -> None:
        self._loaders.backward()
        self._foreign.attach(threading.get_ident())
        self._loss_targets.backward(self._loaders.leading_size)
        if len(self._backward_ends) < BY_HAND_BACKWARDS:
            self._backward_ends.append(time.monotonic())
        if loss is not None and loss.numel() == 1 and len(self.first_losses) < FIRST_LOSSES:
            value = loss.detach().abs().item() if loss.is_complex() else float(loss.detach())
            if math.isfinite(value):
                self.first_losses.append(value)

    def called(self, with_gradients: bool) -> None:
        """Notes a call of a module; a call without gradients after a step is an evaluation, or a part of each step."""
        if not with_gradients:
            self._evaluated.add(len(self._step_ends))

    def grad_norm_before(self, optimizer: torch.optim.Optimizer) -> None:
        """Notes the norm of the first step's gradients, before the step; a closure makes gradients within the step."""
        if self._grad_norm is None and not self._steps.used_closure:
            self._grad_norm = gradient_norm(parameters_of(optimizer))

    def _step(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not self._steps.primary:
            return
        self._loaders.stepped()
        self.batch_uses.stepped()
        if not self._step_ends:
            self._statistics.look(self._modules)
        if not self._step_ends and self._loaders.has_larger_batches:
            adapt_to_large_blocks()  # Otherwise the pages of a step would be those before the first validation.
        self._backwards_at_steps.append(self._steps.num_backwards)
        self._step_ends.append(time.monotonic())
        self._pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)

    def empty_loaders(self) -> tuple[str, ...]:
        """Places of construction of loaders that the script iterated without a batch."""
        return self._loaders.empty()

    def facts(self, world_size: int) -> ScriptFacts:
        """All facts of the script."""
        modules = self._modules
        parameters = weights_of(self._roots.modules)
        optimizer = self._steps.primary
        ends = self._step_ends or self._backward_ends
        loader, accumulation = self._loaders.facts(), self._loaders.batches_per_step()
        num_backwards = usual_growth(self._backwards_at_steps)
        arguments = self._argument_facts(loader, accumulation if loader is not None else num_backwards)
        has_batch = {"batch_size", "grad_accum_steps"} <= {argument.name for argument in arguments}
        argument_batch = self._input_size if loader is None and not self._foreign.library and has_batch else None
        device = self._device(parameters)
        in_force = settings_in_force(device, self._roots.modules, self._operands.precision, self._steps.stepping)
        kept, pages = in_force.get("keep_freed_memory"), self._pages
        blocks = [block for root in self._roots.modules for block in repeated_blocks(root)]
        return ScriptFacts(
            device=device,
            world_size=world_size,
            loader=loader,
            num_micro_batches_per_step=accumulation if argument_batch is None else num_backwards,
            num_backwards_per_step=num_backwards,
            argument_batch=argument_batch,
            accumulation_variable=accumulation_variable(accumulation) if accumulation == num_backwards else "",
            num_optimizers=self._steps.num_optimizers,
            optimizer=type(optimizer).__name__ if optimizer is not None else "",
            num_repeated_blocks=len(blocks),
            num_block_shapes=num_shapes(blocks),
            own_ddp=self._own_ddp(),
            own_optimizer_form=str(in_force.get("optimizer_form", OptimizerForm.DEFAULT)),
            optimizer_forms=forms_of_all(self._steps.stepping),
            uses_closure=self._steps.used_closure,
            counts_evaluations=self._steps.has_counted_evaluations,
            num_batch_norms=self._statistics.count(modules),
            num_convolutions=sum(isinstance(m, CONVOLUTIONS) for m in modules),
            has_unsafe_loss=self._loss_targets.has_unsafe,
            recurrent_share=self._operands.recurrent_share,
            num_root_modules=len(self._roots.modules),
            own_autocast=self._autocast_dtype(),
            own_grad_scaler="grad_scaler" in self._seen,
            own_compile=self._compiler.is_used,
            own_threads=self._sets_threads(),
            own_cudnn_benchmark=bool(in_force.get("cudnn_benchmark", False)),
            own_channels_last=bool(in_force.get("channels_last", False)),
            own_matmul_precision=str(in_force.get("matmul_precision", MatmulPrecision.HIGHEST)),
            own_memory_fraction="memory_fraction" in self._seen,
            loss_reduction=LossReduction.UNKNOWN,
            loss_targets_vary=self._loss_targets.vary,
            first_loss=self.first_losses[0] if self.first_losses else None,
            first_grad_norm=self._grad_norm,
            intra_op_threads=int(in_force["intra_op_threads"]),
            omp_wait_policy=str(in_force["omp_wait_policy"]),
            keeps_freed_memory=None if kept is None else bool(kept),
            frees_larger_blocks=self._loaders.has_larger_batches,
            pages_per_step=median(b - a for a, b in pairwise(pages)) if len(pages) > 1 else None,
            precision=str(in_force.get("precision", Precision.FP32.value)),
            claims=tuple(sorted(self.claims)),
            knobs=tuple(sorted(self.knobs.items())),
            modules=imported_modules(),
            imports=installed_modules(),
            early_environment=self._early_environment,
            imported_after_freeze=imported_after_freeze(),
            device_numbers=device_numbers(self._roots.modules, parameters),
            cuda_devices=ask(),
            torch_version=str(torch.__version__),
            num_parameters=sum(p.numel() for p in parameters),
            first_step_s=ends[0] - self._started_at if ends else 0.0,
            step_s=_usual_step_s(ends, self._evaluated if self._step_ends else ()),
            num_steps=len(ends),
            leading_size=self._loaders.leading_size,
            call_flops=self._call_flops(),
            saved_bytes=self._saved.num_bytes or None,
            allocated_before_bytes=self._saved.before_bytes,
            parameter_bytes=bytes_of(parameters),
            gradient_bytes=bytes_of(p for p in parameters if p.requires_grad),
            optimizer_state_bytes=sum(map(state_bytes, self._steps.stepping)),
            batch_copy=self.batch_uses.found(loader.keys if loader is not None else ()),
            foreign_loader=self._foreign.library if loader is None else "",
            foreign_batches_vary=loader is None and self._foreign.batches_vary,
            schedule_follows_length=self._is_scheduled_per_batch() and self._loaders.is_length_asked_first,
            arguments=arguments,
            notes=self._notes(parameters, in_force),
        )

    def _argument_facts(self, loader: LoaderFacts | None, num_micro_batches: int) -> tuple[ArgumentFacts, ...]:
        return self._arguments.facts(
            loader,
            num_micro_batches=num_micro_batches,
            own_autocast=self._autocast_dtype(),
            targets_vary=self._loss_targets.vary,
            input_size=self._input_size,
        )

    @property
    def _modules(self) -> list[torch.nn.Module]:
        """All modules of the models that the script calls."""
        return [module for root in self._roots.modules for module in root.modules()]

    def _note_inputs(self, inputs: Any) -> None:
        self._statistics.look(self._modules)
        size = leading_size(inputs)
        if self._input_size is None or size is not None:
            self._input_size = size

    def _own_ddp(self) -> tuple[tuple[str, bool | int], ...]:
        """Arguments of the script's DistributedDataParallel; empty without this wrapper, or with several."""
        roots = [root for root in self._roots.modules if isinstance(root, DistributedDataParallel)]
        if len(roots) != 1:
            return ()
        values = {name: BY_NAME[name].read_of_module(roots[0]) for name in ARGUMENTS}  # type: ignore[misc]
        values["find_unused_parameters"] = bool(roots[0].find_unused_parameters)
        return tuple(sorted(values.items()))  # type: ignore[arg-type]

    def _steps_copies(self, parameters: list[torch.nn.Parameter]) -> bool:
        """Whether the optimizers step no parameter of the model, but copies, as those of DeepSpeed's ZeRO do.

        A frozen model has no copies, and FSDP may have gathered the weights at this moment.
        """
        trained = {id(weight) for weight in parameters if weight.requires_grad}
        stepped = {id(weight) for optimizer in self._steps.stepping for weight in parameters_of(optimizer)}
        is_apart = bool(trained and stepped) and trained.isdisjoint(stepped)
        return is_apart and not any(map(torch_names.is_sharded, self._roots.modules))

    def _autocast_dtype(self) -> str | None:
        """Names of the types of the script's own autocast regions; None without a region."""
        return ", ".join(sorted(self._autocast_dtypes)) or None

    def _call_flops(self) -> float | None:
        """Operations of one call of the model with its backward pass; None for several models, and if unseen."""
        num_models = sum(bool(weights_of([root])) for root in self._roots.modules)
        return self._operands.num_flops or None if num_models == 1 else None

    def _notes(self, parameters: list[torch.nn.Parameter], in_force: Mapping[str, Value]) -> tuple[str, ...]:
        """Names of further observations."""
        notes = {
            "several_loaders": self._loaders.num_training() > 1,
            "reads_ahead": self._loaders.is_read_ahead,
            "replays_batches": self._loaders.is_replayed,
            "launcher_threads": launcher_sets_threads(),
            "format_unseen": self._operands.dtype is None,
            # A convolution's weight has three dimensions or more.
            "no_convolution": bool(parameters) and all(p.dim() < 3 for p in parameters),
            "deterministic": torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
            "data_parallel": any(num_replicas(root) > 1 for root in self._roots.modules),
            # Parameters of CUDA always count as shared with other processes.
            "shared_model": any(p.device.type == "cpu" and p.is_shared() for p in parameters),  # type: ignore[no-untyped-call]
            "attention": self._operands.has_fused_attention,
            "own_attention": torch_names.is_cuda_on() and in_force.get("sdpa_backend") != SdpaBackend.DEFAULT,
            "ddp": bool(self._own_ddp()),
            "deepspeed": any(is_of_class(root, "DeepSpeedEngine") for root in self._roots.modules),
            "steps_copies": self._steps_copies(parameters),
            "sharded": any(map(torch_names.is_sharded, self._roots.modules)),
            "pinned_process": self._loaders.is_pinned,
            "varying_inputs": self._calls.inputs_vary,
            "recurring_inputs": self._calls.inputs_recur,
            "varying_batches": self._calls.batches_vary,
            "kept_outputs": self._calls.keeps_outputs,
            "unguarded_spawn": self._loaders.start_method not in ("", "fork") and not is_guarded(),
        }
        return tuple(name for name, is_so in notes.items() if is_so)

    def _is_scheduled_per_batch(self) -> bool:
        """Whether a scheduler moved with nearly every optimizer step; the probe ends before the last step's move."""
        most = max(self._scheduler_steps.values(), default=0)
        return most > 0 and 2 * most >= len(self._step_ends) - 1

    def _device(self, parameters: list[torch.nn.Parameter]) -> str:
        if parameters:
            return parameters[0].device.type
        optimizer = self._steps.primary
        if optimizer is not None:
            return next(parameter.device.type for parameter in parameters_of(optimizer))
        return "cpu"


def _usual_step_s(ends: Sequence[float], evaluated: Collection[int] = ()) -> float:
    """Mean duration of a step in seconds, by the ends of steps; 0 for a single step.

    Args:
        ends: Times of the ends of steps, in order.
        evaluated: Numbers of the steps before which the model ran without gradients. An evaluation comes once in many
            steps, often right after the first, and is left out; a call in every step is a part of the step.
    """
    gaps = {number: later - earlier for number, (earlier, later) in enumerate(pairwise(ends), start=1)}
    alone = [gap for number, gap in gaps.items() if number not in evaluated] or [*gaps.values()]
    return fmean(alone) if alone else 0.0
