"""Observes one training process in stages after the window, each stage for some steps."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from autotune.measure.bottleneck import LOADER_NOTICEABLE_WAIT_FRACTION
from autotune.model.observation import FormatRatio, LargerBatch, MemoryKinds, Observation, OptimizerTimes
from autotune.model.what_if import StorageTimes
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.trial.loader.batch_source import BatchSource
from autotune.trial.loader.foreign_batches import ForeignBatches
from autotune.trial.loader.larger_batch import UnrepeatableError, repeated
from autotune.trial.meter.host_memory import held_bytes
from autotune.trial.observing.call_stage import CallStage
from autotune.trial.observing.decoding_stage import DecodersOnDevice, DecodingStage
from autotune.trial.observing.device_times import FunctionRecording, TraceRecording
from autotune.trial.observing.foreign_work import ForeignWork
from autotune.trial.observing.host_places import LoopSamples, host_places
from autotune.trial.observing.larger_batch_stage import LargerBatchStage
from autotune.trial.observing.loader_work import LoadingWatch
from autotune.trial.observing.memory_kinds import memory_kinds, total_bytes
from autotune.trial.observing.stages import DeviceStage, LineStage, MemoryStage, RecordingStage, Stage
from autotune.trial.observing.storage_what_if import WhatIf
from autotune.trial.observing.timed_copies import LayerUses, format_ratios, optimizer_times
from autotune.trial.observing.user_code import shown_place, users_stack
from autotune.trial.step.roots import Roots, weights_of
from autotune.trial.step.steps import Steps
from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import batch_bytes, clone_batch, leading_size
from autotune.trial.torch.device_clock import clock_for
from autotune.trial.torch.patching import wrap

FACTORS = (8, 4, 2)
"""Sizes of the larger batch as multiples of the script's batch; the largest size with enough room is taken."""
LARGER_LIMIT_S = 0.4
"""Longest step on the larger batch in seconds, estimated as `factor` times the script's step; nine steps follow."""
ACTIVATION_SLACK = 2.0
"""Peak memory of forward and backward, as a multiple of the memory kept between them."""
COPIES_OF_PARAMETERS = 8
"""Memory of two optimizers with states, gradients and parameters, as a multiple of the parameters' memory."""
TRACE_STEPS, FUNCTION_STEPS, FUNCTION_S = 5, 10, 1.0


class Observer:
    """Observes a training loop after its window; measures nothing before.

    Args:
        job: The diagnosis.
        paths: The trial's files, with the folder of profiles.
        steps: The script's backward passes and steps.
        roots: The script's root modules.
        batch_source: Gives the script its batches.
        at_begin: Called first, to read the memory before the observer takes any.
        wait_fraction: Returns the share of the window spent waiting for data, 0 to 1.
    """

    def __init__(
        self,
        job: TrialJob,
        paths: TrialPaths,
        steps: Steps,
        roots: Roots,
        batch_source: BatchSource,
        *,
        at_begin: Callable[[], None],
        wait_fraction: Callable[[], float],
    ) -> None:
        self._job, self._paths, self._steps, self._roots, self._batch_source = job, paths, steps, roots, batch_source
        self._at_begin = at_begin
        self._loading = LoadingWatch()
        self._what_if = WhatIf()
        self._wait_fraction = wait_fraction
        self._storage: StorageTimes | None = None
        self._decoders: DecodersOnDevice | None = None
        self._lines = LineStage()
        self._calls = CallStage(steps, roots, self._loading, job.device)
        self._larger: LargerBatchStage | None = None
        self._factor = 0
        self._build_s: tuple[float, float] | None = None
        self._memory: MemoryKinds | None = None
        self._memory_stage: MemoryStage | None = None
        self._device_stage: DeviceStage | None = None
        self._uses: LayerUses | None = None
        self._formats: tuple[FormatRatio, ...] = ()
        self._optimizer: OptimizerTimes | None = None
        self._first_batch: Any = None
        self._data_parallel, self._parameter_dtype, self._num_trainable = False, "", 0
        self._optimizer_places: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._stages: Iterator[Stage] = iter(())
        self._stage: Stage | None = None
        self._num_steps = 0
        self._began = 0.0

    # Before the window ------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Notes the construction sites of optimizers, and the first batch."""
        self._batch_source.at_first_batch(self._keep_batch)
        wrap(torch.optim.Optimizer, "__init__", self._noting_place)

    def before_iteration(self, loader: Any) -> None:
        """Prepares the training loader for the gate, before an iteration."""
        self._loading.iteration_ends(loader)

    def after_gate(self, loader: Any) -> None:
        """Adds the timing to the training loader's workers, after the gate has prepared the loader."""
        self._loading.iteration_begins(loader)
        self._what_if.iteration_begins(loader)

    def watch_foreign_loader(self, foreign: ForeignBatches) -> None:
        """Charges the threads of a loader that is no DataLoader, and times the waits for its batches."""
        self._calls.foreign = ForeignWork(foreign)

    def _keep_batch(self, batch: Any) -> None:
        self._first_batch = clone_batch(batch)

    def _noting_place(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            stack = users_stack(sys._getframe(1))
            self._optimizer_places[optimizer] = shown_place(stack[0] if stack else None)

        return init

    # After the window -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins the first stage."""
        self._at_begin()
        self._note_model()
        self._stages = self._all_stages()
        self._next()

    def stepped(self) -> bool:
        """Notes a step, and may begin the next stage; True when all stages are over."""
        if self._stage is None:
            return True
        self._num_steps += 1
        elapsed_s = time.perf_counter() - self._began
        if isinstance(self._stage, (LargerBatchStage, DecodingStage)):
            self._stage.stepped()
            is_enough = self._stage.is_over
        else:
            is_enough = self._num_steps >= self._stage.least_steps and elapsed_s >= self._stage.least_s
            is_enough = is_enough and (self._stage is not self._calls or self._calls.has_seen_loading)
        if is_enough or elapsed_s >= self._stage.longest_s:
            self._stage.end(self._num_steps, elapsed_s)
            self._next()
        return self._stage is None

    @property
    def may_fail(self) -> bool:
        """Whether an error of the script may come from the observer's larger batch."""
        return isinstance(self._stage, LargerBatchStage) and self._stage.is_larger

    def observation(self) -> Observation | None:
        """The finished observation; None when the script ended before the stage of calls was over."""
        if self._stage is not None:
            # The script ended or failed during this stage.
            stage, self._stage = self._stage, None
            stage.end(self._num_steps, max(time.perf_counter() - self._began, 1e-9))
        steps = self._calls.times
        if steps is None:
            return None
        return Observation(
            steps=steps,
            main_cpu_s=self._lines.cpu_s,
            cpu_wall_s=self._lines.wall_s,
            host_places=host_places(self._loop_samples()),
            is_sampled=self._lines.is_sampled,
            loading=self._calls.loading_times,
            storage=self._storage_times(),
            storage_failure=self._what_if.failure,
            memory=self._memory_kinds(),
            device=self._device_stage.times if self._device_stage is not None else None,
            larger_batch=self._larger_batch(),
            formats=self._formats,
            optimizer=self._optimizer,
            data_parallel=self._data_parallel,
            parameter_dtype=self._parameter_dtype,
            num_trainable=self._num_trainable,
            step_place=shown_place(self._calls.step_place),
            forward_place=shown_place(self._calls.forward_place),
        )

    def _next(self) -> None:
        self._stage = next(self._stages, None)
        self._num_steps, self._began = 0, time.perf_counter()
        if self._stage is not None:
            self._stage.begin()
            self._began = time.perf_counter()

    def _all_stages(self) -> Iterator[Stage]:
        yield self._lines
        yield self._calls
        if not any(torch_names.is_compiled(root) for root in self._roots.modules):
            self._uses = LayerUses(self._roots.modules)
        self._memory_stage = MemoryStage(self._steps, self._roots, self._note_memory)
        yield self._memory_stage
        if self._uses is not None:
            self._uses.detach()
        is_cuda = torch_names.is_cuda_on()
        if is_cuda:
            self._device_stage = DeviceStage()
            yield self._device_stage
        if self._job.profiles:
            yield RecordingStage(
                TraceRecording(self._paths.profiles, is_cuda=is_cuda), least_steps=TRACE_STEPS, least_s=0.0
            )
            yield RecordingStage(
                FunctionRecording(self._paths.profiles), least_steps=FUNCTION_STEPS, least_s=FUNCTION_S
            )
        self._time_copies()
        yield from self._storage_stages()
        larger = self._larger_batch_stage()
        if larger is not None:
            self._larger = larger
            yield larger

    def _storage_stages(self) -> Iterator[Stage]:
        """Tries other ways to store and to decode where training waits; on CUDA also decoding beside training."""
        times = self._calls.times
        # Ranks would disturb each other, and one rank's samples are a share of the dataset.
        if times is None or not self._is_alone:
            return
        # Observed steps are slower than the script's own, and may hide a wait.
        if max(self._wait_fraction(), times.data_wait_s / times.wall_s) < LOADER_NOTICEABLE_WAIT_FRACTION:
            return
        self._storage = self._what_if.measure()
        if self._storage is None or not self._storage.decoders or not torch_names.is_cuda_on():
            return
        decoders = self._decoders = self._decoders_on_device(self._storage)
        yield from decoders.stages()

    def _decoders_on_device(self, tried: StorageTimes) -> DecodersOnDevice:
        """Decoders of lists as long as the images of a batch."""
        facts, clock = self._job.facts, clock_for(self._job.device)
        num_batches = facts.num_micro_batches_per_step if facts is not None else 1
        num_samples = leading_size(self._first_batch) or 1

        def stage(decode: Callable[[], object]) -> DecodingStage:
            return DecodingStage(decode, num_batches, self._batch_source.give, self._first_batch, clock.finish)

        has_batch = self._first_batch is not None and not self._batch_source.is_read_ahead
        return DecodersOnDevice(
            self._what_if.images,
            round(tried.images_per_sample * num_samples),
            self._room_bytes() if has_batch else 0.0,
            stage,
        )

    def _storage_times(self) -> StorageTimes | None:
        """Times on the CPU, and of decoders for the device."""
        if self._storage is None or self._decoders is None:
            return self._storage
        return replace(self._storage, decoders=(*self._storage.decoders, *self._decoders.times))

    def _note_model(self) -> None:
        """Notes facts about the model early, since a script that ends takes the model along."""
        modules = [module for root in self._roots.modules for module in root.modules()]
        parameters = weights_of(self._roots.modules)
        dtypes = [str(p.dtype).removeprefix("torch.") for p in parameters]
        self._data_parallel = any(isinstance(module, torch.nn.DataParallel) for module in modules)
        self._parameter_dtype = max(set(dtypes), key=dtypes.count) if dtypes else ""
        self._num_trainable = sum(p.numel() for p in parameters if p.requires_grad)

    def _note_memory(self) -> None:
        optimizers = [self._steps.primary] if self._steps.primary is not None else []
        size = batch_bytes(self._first_batch) if self._first_batch is not None else 0
        self._memory = memory_kinds(self._roots.modules, optimizers, activations_bytes=None, batch_bytes=size)

    def _memory_kinds(self) -> MemoryKinds | None:
        memory, stage = self._memory, self._memory_stage
        if memory is None or stage is None:
            return None
        return MemoryKinds(
            parameters_bytes=memory.parameters_bytes,
            buffers_bytes=memory.buffers_bytes,
            gradients_bytes=memory.gradients_bytes,
            optimizer_state_bytes=memory.optimizer_state_bytes,
            activations_bytes=stage.activations_bytes,
            batch_bytes=memory.batch_bytes,
        )

    def _time_copies(self) -> None:
        """Times number formats and forms of the optimizer on copies, if there is room for copies."""
        optimizer = self._steps.primary
        size = total_bytes(self._steps.parameters())
        if COPIES_OF_PARAMETERS * size > self._room_bytes():
            return
        clock = clock_for(self._job.device)
        facts = self._job.facts
        is_autocast = facts is not None and facts.own_autocast is not None
        if self._uses is not None:
            self._formats = format_ratios(self._uses, clock, is_cuda=torch_names.is_cuda_on(), is_autocast=is_autocast)
        if optimizer is not None:
            self._optimizer = optimizer_times(optimizer, self._optimizer_places.get(optimizer, ""), clock)

    def _larger_batch_stage(self) -> LargerBatchStage | None:
        times = self._calls.times
        if self._first_batch is None or times is None or not self._is_alone or self._batch_source.is_read_ahead:
            return None
        if self._batch_source.beside.has_any:
            return None
        step_s = (times.wall_s - times.data_wait_s) / times.num_steps
        held = self._memory_stage.activations_bytes if self._memory_stage is not None else None
        per_batch = ACTIVATION_SLACK * ((held or 0) + batch_bytes(self._first_batch))
        room = self._room_bytes()
        factor = next((f for f in FACTORS if f * step_s <= LARGER_LIMIT_S and f * per_batch <= room), 0)
        if not factor:
            return None
        try:
            batch = repeated(self._first_batch, factor)
        except UnrepeatableError:
            return None
        self._factor, self._build_s = factor, self._loading.build_s_by_size(factor)
        clock = clock_for(self._job.device)
        return LargerBatchStage(
            self._batch_source.give, self._first_batch, batch, clock.finish, lambda: self._batch_source.substitute_s
        )

    @property
    def _is_alone(self) -> bool:
        return self._job.world_size == 1

    def _larger_batch(self) -> LargerBatch | None:
        timed = self._larger.step_s if self._larger is not None else None
        if timed is None:
            return None
        own_build_s, build_s = self._build_s or (None, None)
        return LargerBatch(
            factor=self._factor, own_step_s=timed[0], step_s=timed[1], own_build_s=own_build_s, build_s=build_s
        )

    def _room_bytes(self) -> float:
        """Bytes of memory still free under the cap."""
        if not torch_names.is_cuda_on():
            return self._job.cap_bytes - (held_bytes() or 0)
        free, total = torch.cuda.mem_get_info()
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        allowed = self._job.cap_fraction * total - torch.cuda.max_memory_allocated()
        return min(free + unused, allowed)

    def _loop_samples(self) -> LoopSamples:
        calls, sampler, times = self._calls, self._lines.sampler, self._calls.times
        assert times is not None
        return LoopSamples(
            training=calls.training,
            loading=calls.loading,
            num_steps=times.num_steps,
            wall_s=times.wall_s,
            call_counts=calls.calls.counts,
            call_seconds=calls.calls.seconds,
            sampled=sampler.seconds,
            sampled_in_torch=sampler.torch_seconds,
        )
