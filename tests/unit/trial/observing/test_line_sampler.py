from __future__ import annotations

import signal
import sys
import types

import pytest
import torch

from autotune.trial.observing import line_sampler
from autotune.trial.observing.line_sampler import LineSampler


@pytest.fixture
def clock(monkeypatch):
    clock = types.SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(line_sampler, "time", types.SimpleNamespace(perf_counter=lambda: clock.now_s))
    return clock


@pytest.fixture
def timers(monkeypatch):
    """Timers and handlers that were set, in place of real ones."""
    made = types.SimpleNamespace(handler=signal.SIG_DFL, timer=(0.0, 0.0))
    monkeypatch.setattr(line_sampler.signal, "getsignal", lambda _: made.handler)
    monkeypatch.setattr(line_sampler.signal, "getitimer", lambda _: made.timer)
    monkeypatch.setattr(line_sampler.signal, "signal", lambda _, handler: setattr(made, "handler", handler))
    monkeypatch.setattr(line_sampler.signal, "setitimer", lambda _, *times: setattr(made, "timer", times))
    return made


def frame_of(source, path, **names):
    """The frame from which the code, as if it lay in that file, calls `look`."""
    frames = []
    namespace = {"look": lambda *_: frames.append(sys._getframe(1)), **names}
    exec(compile(source, str(path), "exec"), namespace)
    return frames[0]


def test_each_sample_counts_for_the_time_since_the_last_sample(clock, timers, tmp_path):
    script = tmp_path / "train.py"
    frame = frame_of("def f():\n    look()\n\n\nf()\n", script)
    sampler = LineSampler()
    assert sampler.begin()
    clock.now_s = 0.001
    sampler._sample(signal.SIGALRM, frame)
    clock.now_s = 0.051  # a call into C held the signal up; another line of this test is current by now
    sampler._sample(signal.SIGALRM, frame)
    assert {stack[0] for stack in sampler.seconds} == {(str(script), 2)}
    assert sorted(sampler.seconds.values()) == pytest.approx([0.001, 0.05])
    assert not sampler.torch_seconds


def test_time_within_torchs_own_python_is_told_apart(clock, timers, tmp_path):
    class Look(torch.nn.Module):
        def forward(self, _):
            return None

    frames = []
    layer = torch.nn.Sequential(Look())
    layer[0].register_forward_pre_hook(lambda *_: frames.append(sys._getframe(1)))
    layer(torch.ones(1))
    sampler = LineSampler()
    assert sampler.begin()
    clock.now_s = 1.0
    sampler._sample(signal.SIGALRM, frames[0])
    assert sum(sampler.torch_seconds.values()) == pytest.approx(1.0)


def test_at_the_end_no_late_signal_can_end_the_process(clock, timers):
    sampler = LineSampler()
    assert sampler.begin() and timers.timer[0] > 0
    sampler.end()
    assert timers.timer == (0.0,) and timers.handler is signal.SIG_IGN and not sampler.is_on


@pytest.mark.parametrize("taken", [{"handler": print}, {"timer": (3.0, 0.0)}], ids=["handler", "timer"])
def test_a_signal_or_a_timer_that_the_script_uses_is_left_alone(clock, timers, taken):
    vars(timers).update(taken)
    assert not LineSampler().begin()
    assert {name: vars(timers)[name] for name in taken} == taken
