"""Hours of training on a simulated clock, with a fall of the rate or without, through the watch of `autotune run`."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from autotune.protocol.job import RunWatch
from autotune.trial.run_watch import Watch

STEP_S = 0.1
SAMPLES_PER_STEP = 64.0
EARLIEST_S, LATEST_S = 600.0, 2700.0
"""Range of the moment of a fall."""
HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """How much the steps of a steady training differ, as standard deviations of their logarithm."""

    name: str
    of_steps: float
    """From step to step, independently."""
    of_minutes: float
    """Slowly, with a memory of `MEMORY_S`: other programs, temperatures."""


MEMORY_S = 40.0
MACHINES = (
    Machine(name="quiet", of_steps=0.03, of_minutes=0.003),
    Machine(name="usual", of_steps=0.1, of_minutes=0.01),
    Machine(name="noisy", of_steps=0.3, of_minutes=0.03),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hour:
    """One simulated hour of training."""

    machine: str
    fell_at_s: float | None
    """Moment of the fall; None without."""
    told_at_s: tuple[float, ...]
    """Moments at which the watch told of a drift."""
    told: tuple[float, ...]
    """Sizes of the told drifts, as shares."""

    @property
    def false_alarms(self) -> int:
        """Drifts told in a steady training."""
        return sum(self.fell_at_s is None or moment < self.fell_at_s for moment in self.told_at_s)

    @property
    def found_after_min(self) -> float | None:
        """Minutes from the fall to the word; None when the watch said none."""
        if self.fell_at_s is None:
            return None
        after = [moment for moment in self.told_at_s if moment >= self.fell_at_s]
        return (after[0] - self.fell_at_s) / 60 if after else None


def train(machine: Machine, seed: int, *, fall: float) -> Hour:
    """An hour of training.

    Args:
        machine: Noise of the steps.
        seed: Of the noise, and of the moment of the fall.
        fall: Share by which the rate falls, 0 for none.
    """
    chance = random.Random(f"{machine.name} {seed}")
    fell_at_s = chance.uniform(EARLIEST_S, LATEST_S) if fall else None
    now_s, slow = 0.0, 0.0
    told_at_s, told = [], []

    def hear(line: str) -> None:
        if "has fallen by" in line:
            told_at_s.append(now_s)
            told.append(float(line.partition("fallen by ")[2].partition("%")[0]) / 100)

    asked = RunWatch(log="/dev/null", config="/autotune.yaml", samples_per_step=SAMPLES_PER_STEP)
    watch = Watch(asked, now=lambda: now_s, write=hear)
    keep = math.exp(-STEP_S / MEMORY_S)
    while now_s < HOUR_S:
        slow = keep * slow + math.sqrt(1 - keep**2) * chance.gauss(0.0, machine.of_minutes)
        is_slower = fell_at_s is not None and now_s >= fell_at_s
        now_s += STEP_S / (1 - fall * is_slower) * math.exp(slow + chance.gauss(0.0, machine.of_steps))
        watch.stepped()
    return Hour(machine=machine.name, fell_at_s=fell_at_s, told_at_s=tuple(told_at_s), told=tuple(told))


def hours(*, fall: float, num_runs: int) -> list[Hour]:
    """Runs on every machine."""
    return [train(machine, seed, fall=fall) for machine in MACHINES for seed in range(num_runs)]
