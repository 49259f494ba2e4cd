"""The probe: one run of the script under its own settings that learns what it is, and measures nothing."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterableDataset

from autotune.model.facts import BatchSamplerKind, LoaderFacts, LossReduction, ScriptFacts
from autotune.settings import DEFAULT_PREFETCH_FACTOR, Group, OmpWaitPolicy, Precision
from autotune.trial.batches import batch_bytes, leading_size
from autotune.trial.loaders import LoaderRecord, Loaders
from autotune.trial.patching import wrap
from autotune.trial.precision import OperandWitness
from autotune.trial.roots import Roots
from autotune.trial.steps import Steps

NUM_STEPS = 6
"""Optimizer steps of a probe: the first one initialises, the others tell how long a step takes."""
LONG_STEPS = 3
LONG_S = 20.0
"""A script with long steps is understood after fewer of them."""
FIRST_LOSSES = 64


class Witness:
    """Watches the script's seams and turns what it saw into ScriptFacts."""

    def __init__(self, *, loaders: Loaders, steps: Steps, roots: Roots, started_at: float, num_steps: int) -> None:
        self.first_losses: list[float] = []
        self.claims: set[Group] = set()
        self.knobs: dict[str, str] = {}
        self.is_done: Callable[[], None] = lambda: None
        """Called when enough was seen."""
        self._loaders, self._steps, self._roots = loaders, steps, roots
        self._started_at, self._num_steps = started_at, num_steps
        self._operands = OperandWitness()
        self._seen: set[str] = set()
        self._autocast_dtype: str | None = None
        self._step_ends: list[float] = []
        self._batches_at_first_step = 0
        self._backwards_at_first_step = 0
        self._grad_norm: float | None = None
        self._batch_bytes = 0
        self._leading_size: int | None = None

    def install(self) -> None:
        """Attaches to everything that decides what may be tuned."""
        self._loaders.next_batch = self._next_batch
        self._steps.on_backward.append(self._backward)
        self._steps.on_step.append(self._step)
        self._roots.prepare.append(self._operands.attach)
        self._watch(torch, "set_num_threads", "threads")
        self._watch(torch, "compile", "compile")
        self._watch(torch.nn.Module, "compile", "compile")
        self._watch(torch.cuda, "set_per_process_memory_fraction", "memory_fraction")
        wrap(torch.amp.autocast, "__enter__", self._wrap_autocast)
        wrap(torch.amp.GradScaler, "__init__", self._wrap_scaler)

    def _watch(self, owner: Any, name: str, what: str) -> None:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self._seen.add(what)
                return original(*args, **kwargs)

            return call

        wrap(owner, name, make)

    def _wrap_autocast(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(region: Any) -> Any:
            if region._enabled and torch.is_grad_enabled():
                self._autocast_dtype = str(region.fast_dtype).removeprefix("torch.")
            return original(region)

        return enter

    def _wrap_scaler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            if scaler.is_enabled():
                self._seen.add("grad_scaler")

        return init

    def _next_batch(self, record: LoaderRecord, iterator: Any, original: Callable[[Any], Any]) -> Any:
        if record.has_backward_since and record.num_delivered:
            record.num_trained += 1
        record.has_backward_since = False
        try:
            batch = original(iterator)
        except StopIteration:
            if not self._steps.num_backwards and record.num_delivered > 1:
                record.is_read_before_training = True
            raise
        record.num_delivered += 1
        self._batch_bytes = max(self._batch_bytes, batch_bytes(batch))
        self._leading_size = leading_size(batch)
        return batch

    def _backward(self, loss: torch.Tensor | None) -> None:
        for record in self._loaders.records:
            record.has_backward_since = True
        if loss is not None and loss.numel() == 1 and len(self.first_losses) < FIRST_LOSSES:
            value = float(loss.detach())
            if math.isfinite(value):
                self.first_losses.append(value)

    def grad_norm_before(self, optimizer: torch.optim.Optimizer) -> None:
        """Notes the norm of the gradients of the first step, before they are used."""
        if self._grad_norm is None:
            squares = [
                float(parameter.grad.detach().double().pow(2).sum())
                for group in optimizer.param_groups
                for parameter in group["params"]
                if parameter.grad is not None and not parameter.grad.is_sparse
            ]
            norm = math.sqrt(sum(squares))
            self._grad_norm = norm if math.isfinite(norm) else None

    def _step(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer is not self._steps.primary:
            return
        if not self._step_ends:
            self._roots.stop()
            self._batches_at_first_step = sum(record.num_delivered for record in self._loaders.records)
            self._backwards_at_first_step = self._steps.num_backwards
        self._step_ends.append(time.monotonic())
        elapsed_s = self._step_ends[-1] - self._step_ends[0]
        if len(self._step_ends) >= self._num_steps or (len(self._step_ends) >= LONG_STEPS and elapsed_s > LONG_S):
            self.is_done()

    def training_record(self) -> LoaderRecord | None:
        """The loader between whose batches backward ran; the last batch of each is given the benefit of the doubt."""
        candidates = [
            (record.num_trained + (record.has_backward_since and record.num_delivered > 0), record)
            for record in self._loaders.records
            if record.num_delivered
        ]
        best = max(candidates, key=lambda pair: pair[0], default=(0, None))
        return best[1] if best[0] else None

    def num_training_loaders(self) -> int:
        """Loaders that take part in training alike: above 1, which one to tune is not ours to guess."""
        trained = [record.num_trained for record in self._loaders.records if record.num_trained]
        return sum(count * 2 >= max(trained) for count in trained) if trained else 0

    def facts(self, world_size: int) -> ScriptFacts:
        """What was learned."""
        record = self.training_record()
        modules = [module for root in self._roots.modules for module in root.modules()]
        parameters = {id(p): p for root in self._roots.modules for p in root.parameters()}
        optimizer = self._steps.primary
        num_more_steps = len(self._step_ends) - 1
        notes = ()
        if self.num_training_loaders() > 1:
            notes = ("several_loaders",)
        return ScriptFacts(
            device=self._device(list(parameters.values())),
            world_size=world_size,
            loader=self._loader_facts(record) if record is not None else None,
            num_micro_batches_per_step=self._per_step(record),
            num_backwards_per_step=self._backwards_per_step(),
            num_optimizers=len(self._steps.optimizers),
            optimizer=type(optimizer).__name__ if optimizer is not None else "",
            uses_closure=self._steps.used_closure,
            num_batch_norms=sum(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in modules),
            num_convolutions=sum(isinstance(m, torch.nn.Conv2d) for m in modules),
            num_root_modules=len(self._roots.modules),
            own_autocast=self._autocast_dtype,
            own_grad_scaler="grad_scaler" in self._seen,
            own_compile="compile" in self._seen,
            own_threads="threads" in self._seen,
            own_cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
            own_memory_fraction="memory_fraction" in self._seen,
            loss_reduction=LossReduction.UNKNOWN,
            first_loss=self.first_losses[0] if self.first_losses else None,
            first_grad_norm=self._grad_norm,
            intra_op_threads=torch.get_num_threads(),
            omp_wait_policy=_wait_policy(),
            precision=(self._operands.precision or Precision.FP32).value,
            claims=tuple(sorted(self.claims)),
            knobs=tuple(sorted(self.knobs.items())),
            modules=tuple(sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names)),
            torch_version=str(torch.__version__),
            num_parameters=sum(p.numel() for p in parameters.values()),
            first_step_s=self._step_ends[0] - self._started_at if self._step_ends else 0.0,
            step_s=(self._step_ends[-1] - self._step_ends[0]) / num_more_steps if num_more_steps > 0 else 0.0,
            num_steps=len(self._step_ends),
            leading_size=self._leading_size,
            notes=notes,
        )

    def _per_step(self, record: LoaderRecord | None) -> int:
        """Batches per optimizer step, from the steps after the first; at least 1."""
        num_steps = len(self._step_ends)
        if record is None or num_steps == 0:
            return 1
        return max(1, round(record.num_delivered / num_steps))

    def _backwards_per_step(self) -> int:
        num_steps = len(self._step_ends)
        return max(1, round(self._steps.num_backwards / num_steps)) if num_steps else 1

    def _device(self, parameters: list[torch.nn.Parameter]) -> str:
        if parameters:
            return parameters[0].device.type
        optimizer = self._steps.primary
        if optimizer is not None:
            return str(optimizer.param_groups[0]["params"][0].device.type)
        return "cpu"

    def _loader_facts(self, record: LoaderRecord) -> LoaderFacts:
        loader = record.loader
        keys = [other.key for other in self._loaders.records if other.loader.dataset is loader.dataset]
        is_iterable = isinstance(loader.dataset, IterableDataset)
        return LoaderFacts(
            keys=tuple(dict.fromkeys([record.key, *keys])),
            dataset=type(loader.dataset).__name__,
            is_iterable=is_iterable,
            num_workers=loader.num_workers,
            prefetch_factor=loader.prefetch_factor or DEFAULT_PREFETCH_FACTOR,
            pin_memory=bool(loader.pin_memory),
            persistent_workers=bool(loader.persistent_workers),
            batch_size=_batch_size(loader),
            drop_last=bool(loader.drop_last),
            batch_sampler=_batch_sampler_kind(loader),
            num_batches=_length(loader),
            num_samples=_length(loader.dataset),
            batch_bytes=self._batch_bytes,
            is_read_before_training=record.is_read_before_training,
        )


def _batch_size(loader: Any) -> int | None:
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) and size > 0 else None


def _batch_sampler_kind(loader: Any) -> BatchSamplerKind:
    if loader.batch_size is not None:
        return BatchSamplerKind.DEFAULT
    if loader.batch_sampler is None:
        return BatchSamplerKind.NONE
    return BatchSamplerKind.STANDARD if type(loader.batch_sampler) is BatchSampler else BatchSamplerKind.CUSTOM


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _wait_policy() -> str:
    is_passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
    return (OmpWaitPolicy.PASSIVE if is_passive else OmpWaitPolicy.DEFAULT).value
