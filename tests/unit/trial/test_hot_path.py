"""Of a step while the clock runs the seams keep nothing, and wait for nothing: all that is kept is kept per block."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from autotune.measure.block import Phase
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import LossReduction
from autotune.trial.loader.batch_source import BatchSource
from autotune.trial.meter.host_clock import Clock, HostClock
from autotune.trial.meter.meter import Meter
from autotune.trial.meter.rank_sync import Agreement, Progress
from autotune.trial.step.gradients import Gradients
from autotune.trial.step.losses import LossWatch
from autotune.trial.step.roots import Roots
from autotune.trial.step.steps import Steps
from autotune.trial.torch import torch_names
from tests.unit.trial import plans
from tests.unit.trial.test_step_marks import STEP_S, Device

OURS = (tracemalloc.Filter(True, "*/autotune/trial/*"), tracemalloc.Filter(True, "*/autotune/measure/*"))
MICRO_BATCHES_PER_BLOCK = 1000
NUM_BLOCKS = 3
POINTER_BYTES = 8
"""Least that one more entry of a list takes."""
PLAN = replace(plans.PLAN, rule=WindowRule(half_width_ratio=0.05, min_window_s=1e6, max_window_s=1e7))


class OnDevice(torch.Tensor):
    """A loss that is there: who asks for its value waits for the device."""

    is_cpu = False  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl

    def _wait(self, *_: object) -> Any:
        pytest.fail("a step waits for the device")

    item = tolist = cpu = __bool__ = __float__ = _wait


class Optimizer:
    """Has no parameters."""


class Window:
    """A script in its window, with all that is attached to a step; its model and its optimizer do nothing."""

    def __init__(self, folder: Path, clock: Clock, loss: torch.Tensor, grad_accum_steps: int) -> None:
        self.loss, self.steps = loss, Steps()
        self.losses = LossWatch(self.steps, Roots())
        self.losses.install()
        gradients = Gradients(
            self.steps, grad_accum_steps=grad_accum_steps, reduction=LossReduction.MEAN, scaled_on=None
        )
        self.steps.policy = gradients._step
        self.backward = self.steps._wrap_backward(gradients._wrap_backward(lambda *_: None))
        self.update = self.steps._wrap_step(lambda _: None)
        self.optimizer: Any = Optimizer()
        batch_source = BatchSource(self.steps, lambda *_: self.meter, num_passes_before_training=0)
        self.meter = Meter(
            PLAN,
            steps=self.steps,
            clock=clock,
            agreement=Agreement(Progress(folder / "progress"), 0, 1),
            open_gate=batch_source.open_gate,
            finish=lambda _: pytest.fail("the window ended"),
            at_phase=lambda phase: self.losses.measure(phase is Phase.WINDOW),
        )
        batch_source._meter = self.meter
        loader = DataLoader(torch.zeros(64, 2), batch_size=4)  # type: ignore[arg-type]
        batch_source.lengthen(loader, least_batches=1 << 20)
        batch_source.epoch.begins(loader)
        self.iterator = iter(loader)
        self.meter._enter(Phase.WINDOW, MICRO_BATCHES_PER_BLOCK)
        record: Any = SimpleNamespace(is_rebuilt=False)
        batch_source.iterated(record, loader, self.iterator)
        self.take = batch_source.next_batch

    def train(self, num_micro_steps: int, after_step: Callable[[], None]) -> None:
        following = type(self.iterator).__next__
        for _ in range(num_micro_steps):
            self.take(self.iterator, following)
            self.backward(self.loss)
            self.update(self.optimizer)
            after_step()


def kept_bytes() -> int:
    """What lives of all that the seams have made."""
    gc.collect()
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(OURS).traces)


def device_of(patch: pytest.MonkeyPatch) -> Device:
    """In place of CUDA."""
    patch.setattr(torch_names, "is_cuda_on", lambda: False)
    return Device(patch)


def on_host(_: pytest.MonkeyPatch) -> tuple[Clock, torch.Tensor, Callable[[], None]]:
    clock, marks = HostClock(), count()
    clock.mark = lambda: float(next(marks))  # type: ignore[method-assign]
    return clock, torch.tensor(0.5, requires_grad=True), lambda: None


def on_device(patch: pytest.MonkeyPatch) -> tuple[Clock, torch.Tensor, Callable[[], None]]:
    """One that is three steps behind its host."""
    device = device_of(patch)

    def work() -> None:
        device.queued_s += STEP_S
        device.now_s = max(0.0, device.queued_s - 3 * STEP_S)

    return device.clock, torch.tensor(0.5).as_subclass(OnDevice), work


@pytest.mark.parametrize("grad_accum_steps", [1, 2])
@pytest.mark.parametrize("where", [on_host, on_device])
def test_nothing_grows_with_the_steps_of_a_window(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Callable[..., tuple[Clock, torch.Tensor, Callable[[], None]]],
    grad_accum_steps: int,
) -> None:
    clock, loss, work = where(monkeypatch)
    window = Window(tmp_path, clock, loss, grad_accum_steps)
    tracemalloc.start()
    try:
        window.train(2 * MICRO_BATCHES_PER_BLOCK, work)
        before, num_blocks = kept_bytes(), window.meter._recorder.num_blocks[Phase.WINDOW]
        window.train(NUM_BLOCKS * MICRO_BATCHES_PER_BLOCK, work)
        grown_bytes = kept_bytes() - before
    finally:
        tracemalloc.stop()
    assert window.meter._recorder.num_blocks[Phase.WINDOW] - num_blocks == NUM_BLOCKS
    num_steps = NUM_BLOCKS * MICRO_BATCHES_PER_BLOCK // grad_accum_steps
    assert grown_bytes < num_steps * POINTER_BYTES, grown_bytes
    assert window.losses.is_finite


@pytest.mark.parametrize("grad_accum_steps", [1, 2])
def test_no_step_of_a_window_waits_for_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grad_accum_steps: int
) -> None:
    device = device_of(monkeypatch)

    def work() -> None:
        device.queued_s += STEP_S

    window = Window(tmp_path, device.clock, torch.tensor(0.5).as_subclass(OnDevice), grad_accum_steps)
    num_synchronised = device.num_synchronised
    window.train(2 * MICRO_BATCHES_PER_BLOCK + 1, work)
    assert (device.num_synchronised, device.waited) == (num_synchronised, [])
    assert len(window.meter.blocks()) == 2
