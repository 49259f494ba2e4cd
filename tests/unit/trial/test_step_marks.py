"""Marks of blocks, and of steps in ranks that wait for each other, on the clock of a device that is made up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from autotune.measure.block import Phase
from autotune.trial.meter.block_recorder import Recorder
from autotune.trial.meter.rank_sync import MAX_STEPS_AHEAD
from autotune.trial.torch.device_clock import CudaClock

STEP_S = 0.25


class Device:
    """A stream of events: the device has come to those that were recorded up to `now_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queued_s = self.now_s = 0.0
        self.num_events = self.num_synchronised = 0
        self.waited: list[float] = []
        fake = SimpleNamespace(Event=lambda enable_timing: Event(self), synchronize=self.synchronise)
        monkeypatch.setattr(torch, "cuda", fake)
        self.clock = CudaClock()
        self.num_synchronised = 0

    def synchronise(self) -> None:
        self.now_s = self.queued_s
        self.num_synchronised += 1


class Event:
    """What the clock uses of `torch.cuda.Event`; an event that is pending must not be asked for times or recorded."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._at_s: float | None = None
        device.num_events += 1

    def record(self) -> None:
        assert self._at_s is None or self.query()
        self._at_s = self._device.queued_s

    def query(self) -> bool:
        assert self._at_s is not None
        return self._at_s <= self._device.now_s

    def synchronize(self) -> None:
        assert self._at_s is not None
        self._device.now_s = max(self._device.now_s, self._at_s)
        self._device.waited.append(self._at_s)

    def elapsed_time(self, end: Event) -> float:
        assert self.query() and end.query()
        assert self._at_s is not None and end._at_s is not None
        return 1000.0 * (end._at_s - self._at_s)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def step(
    device: Device, recorder: Recorder, *, ends_block: bool, step_s: float = STEP_S, marks_step: bool = False
) -> None:
    device.queued_s += step_s
    recorder.count.num_steps += 1
    recorder.count.num_micro_batches += 1
    recorder.count.num_samples += 8.0
    if ends_block:
        recorder.end_block()
    elif marks_step:
        recorder.end_step()


@pytest.mark.parametrize("max_steps_ahead", [None, MAX_STEPS_AHEAD])
def test_a_block_lasts_from_its_first_step_to_its_last(device: Device, max_steps_ahead: int | None) -> None:
    recorder = Recorder(device.clock, max_steps_ahead=max_steps_ahead)
    recorder.begin(Phase.WINDOW)
    for step_s in (0.25, 0.5, 0.25):
        step(device, recorder, ends_block=False, step_s=step_s, marks_step=max_steps_ahead is not None)
    step(device, recorder, ends_block=True)
    step(device, recorder, ends_block=True, step_s=0.125)
    step(device, recorder, ends_block=False)
    assert [(block.num_steps, block.duration_s) for block in recorder.finish()] == [(4, 1.25), (1, 0.125)]


def test_a_block_is_known_once_the_device_is_there_and_nothing_waits_for_it(device: Device) -> None:
    recorder = Recorder(device.clock)
    recorder.begin(Phase.WINDOW)
    num_synchronised = device.num_synchronised
    for _ in range(3):
        step(device, recorder, ends_block=False)
        step(device, recorder, ends_block=True)
        assert recorder.blocks(Phase.WINDOW) == []
    device.now_s = 4 * STEP_S  # two blocks and no more
    step(device, recorder, ends_block=True)
    assert [block.duration_s for block in recorder.blocks(Phase.WINDOW)] == [2 * STEP_S, 2 * STEP_S]
    assert (device.num_synchronised, device.waited) == (num_synchronised, [])


@pytest.mark.parametrize("num_ahead", [0, 3, 40])
def test_events_are_used_again_however_many_steps_there_are(device: Device, num_ahead: int) -> None:
    recorder = Recorder(device.clock)
    recorder.begin(Phase.WINDOW)
    steps_per_block = 5
    for number in range(1, 2001):
        device.now_s = max(0.0, device.queued_s - num_ahead * STEP_S)
        step(device, recorder, ends_block=number % steps_per_block == 0)
    assert device.num_events <= num_ahead // steps_per_block + 5
    blocks = recorder.finish()
    assert len(blocks) == 400
    assert {block.duration_s for block in blocks} == {steps_per_block * STEP_S}


def test_a_phase_begins_where_the_device_is_and_drops_the_block_that_was_not_ended(device: Device) -> None:
    recorder = Recorder(device.clock)
    recorder.begin(Phase.RAMP)
    step(device, recorder, ends_block=True)
    step(device, recorder, ends_block=False)
    device.queued_s += 10.0
    recorder.begin(Phase.WINDOW)
    step(device, recorder, ends_block=True)
    blocks = recorder.finish()
    assert [(block.phase, block.num_steps, block.duration_s) for block in blocks] == [
        (Phase.RAMP, 1, STEP_S),
        (Phase.WINDOW, 1, STEP_S),
    ]


def test_a_rank_waits_for_its_device_when_it_is_more_than_two_steps_ahead(device: Device) -> None:
    recorder = Recorder(device.clock, max_steps_ahead=MAX_STEPS_AHEAD)
    recorder.begin(Phase.WINDOW)
    for number in range(1, 6):
        step(device, recorder, ends_block=number == 4, marks_step=True)
    assert device.waited == [STEP_S, 2 * STEP_S, 3 * STEP_S]
    assert MAX_STEPS_AHEAD == 2
    assert device.num_events <= MAX_STEPS_AHEAD + 4
    assert [block.num_steps for block in recorder.finish()] == [4]


@pytest.mark.parametrize("idle_s", [0.0, 0.125])
def test_handing_out_a_batch_is_a_wait_only_while_the_device_is_idle(device: Device, idle_s: float) -> None:
    """The host copies a cached batch while the device still works on queued steps: nothing of it is lost."""
    recorder = Recorder(device.clock)
    recorder.begin(Phase.COMPUTE)
    for _ in range(4):
        began = recorder.mark()
        device.queued_s += idle_s
        recorder.delivered(began)
        step(device, recorder, ends_block=True)
    blocks = recorder.finish()
    assert [(block.duration_s, block.data_wait_s, block.busy_s) for block in blocks] == 4 * [
        (STEP_S + idle_s, idle_s, STEP_S)
    ]
    assert device.num_events <= 4 * 3 + 1
    assert recorder.idle_s() == 4 * idle_s


def test_a_block_that_the_host_has_ended_is_known_after_a_wait_for_its_mark_alone(device: Device) -> None:
    recorder = Recorder(device.clock)
    recorder.begin(Phase.WINDOW)
    synchronised = device.num_synchronised
    for _ in range(2):
        step(device, recorder, ends_block=True)
    device.queued_s += STEP_S  # The next step is queued already.
    assert (recorder.num_unfinished, recorder.num_blocks[Phase.WINDOW], recorder.latest_block_s) == (2, 0, 0.0)
    recorder.wait()
    assert (recorder.num_unfinished, recorder.num_blocks[Phase.WINDOW], recorder.latest_block_s) == (0, 2, STEP_S)
    assert device.waited == [2 * STEP_S] and device.num_synchronised == synchronised
    recorder.wait()
    assert device.waited == [2 * STEP_S], "there is nothing to wait for"
