"""A watch over real training, on a clock that is moved by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.protocol.job import RunWatch
from autotune.trial.run_watch import Watch


class Training:
    """A training with steps of a fixed length, of which a part waits for data."""

    def __init__(self, log: Path) -> None:
        self.time_s, self.lines, self.log = 1000.0, list[str](), log
        asked = RunWatch(log=str(log), config="/c/autotune.yaml", samples_per_step=64.0, samples_per_second=640.0)
        self.watch = Watch(asked, now=lambda: self.time_s, write=self.lines.append)

    def train(self, seconds: float, *, step_s: float = 0.1, wait: float = 0.0) -> None:
        for _ in range(round(seconds / step_s)):
            self.watch.waited(wait * step_s)
            self.time_s += step_s
            self.watch.stepped()

    @property
    def logged(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path / "log.jsonl")


def test_every_minute_has_one_line_and_one_entry_in_the_log(training: Training) -> None:
    training.train(200, wait=0.25)
    assert len(training.lines) == 3
    assert training.lines[0] == (
        "autotune: 640 samples per second, 100% of the tuned 640; 25% of the time waits for data\n"
    )
    head, *minutes = training.logged
    assert head["config"] == "/c/autotune.yaml" and head["tuned_samples_per_second"] == 640.0
    assert [minute["samples_per_second"] for minute in minutes] == pytest.approx([640.0] * 3)
    assert minutes[0]["data_wait_fraction"] == pytest.approx(0.25)


def test_a_validation_between_two_steps_is_not_training_time(training: Training) -> None:
    training.train(40)
    training.time_s += 300.0
    training.train(100)
    assert [minute["samples_per_second"] for minute in training.logged[1:]] == pytest.approx([640.0] * 2)


def test_a_lasting_fall_of_the_rate_is_told_once_with_advice(training: Training) -> None:
    training.train(300)
    training.train(300, step_s=0.1 / 0.9)
    told = [line for line in training.lines if "fallen" in line]
    assert len(told) == 1 and "fallen by 10%" in told[0] and "autotune search" in told[0]
    assert [entry["drift"] for entry in training.logged if "drift" in entry] == [pytest.approx(-0.1, abs=0.01)]


def test_a_log_that_cannot_be_written_does_not_end_the_training(tmp_path: Path) -> None:
    training = Training(tmp_path / "none" / "log.jsonl")
    training.train(100)
    assert len(training.lines) == 1
