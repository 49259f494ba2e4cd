"""Watches real training: one line a minute on stderr and in a log, and a word when the rate falls for good.

A step costs two readings of the clock. Everything else happens once in some seconds, in the thread that trains.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from autotune.measure.drift import Drift
from autotune.protocol.job import RunWatch
from autotune.trial.torch import torch_names
from autotune.units import format_bytes, format_rate

INTERVAL_S = 10.0
"""Length of an interval; drift is judged by intervals."""
LINE_EVERY = 6
"""Intervals of a line: a minute."""
NUM_LEFT_OUT = 1
"""Intervals left out at the start: kernels are chosen, caches fill."""
PAUSE_S, PAUSE_STEPS = 1.0, 20.0
"""A gap between steps beyond both limits, in seconds and in usual gaps, is a pause: a validation, a checkpoint."""


class Watch:
    """Counts the steps of a real training on one rank.

    Args:
        asked: What to hold the rate against, and the place of the log.
        now: The monotonic clock.
        write: Takes a line for people.
    """

    def __init__(
        self,
        asked: RunWatch,
        now: Callable[[], float] = time.monotonic,
        write: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        self._asked, self._now, self._write = asked, now, write
        self._drift = Drift()
        self._rates: list[float] = []
        self._last: float | None = None
        self._usual_s = 0.0
        """Usual gap between steps."""
        self._steps, self._trained_s, self._waited_s = 0, 0.0, 0.0
        self._minute_waited_s = self._minute_trained_s = 0.0
        self._num_intervals = 0
        self._log(
            {"autotune": "watch", "config": asked.config, "samples_per_step": asked.samples_per_step}
            | {"tuned_samples_per_second": asked.samples_per_second}
        )

    def waited(self, wait_s: float) -> None:
        """Notes a wait for a batch, in seconds."""
        self._waited_s += wait_s

    def stepped(self, _: torch.optim.Optimizer | None = None) -> None:
        """Notes the end of an optimizer step."""
        now, before = self._now(), self._last
        self._last = now
        if before is None:
            return
        gap_s = now - before
        if self._usual_s and gap_s > max(PAUSE_S, PAUSE_STEPS * self._usual_s):
            self._waited_s = 0.0
            return
        self._usual_s = gap_s if not self._usual_s else 0.9 * self._usual_s + 0.1 * gap_s
        self._steps += 1
        self._trained_s += gap_s
        if self._trained_s >= INTERVAL_S:
            self._end_interval()

    def _end_interval(self) -> None:
        rate = self._steps * self._asked.samples_per_step / self._trained_s
        self._minute_trained_s += self._trained_s
        self._minute_waited_s += self._waited_s
        self._steps, self._trained_s, self._waited_s = 0, 0.0, 0.0
        self._num_intervals += 1
        if self._num_intervals <= NUM_LEFT_OUT:
            self._minute_trained_s = self._minute_waited_s = 0.0
            return
        self._rates.append(rate)
        change = self._drift.note(rate)
        if change is not None:
            self._tell_drift(change, rate)
        if len(self._rates) >= LINE_EVERY:
            self._end_minute()

    def _end_minute(self) -> None:
        rate = statistics.fmean(self._rates)
        wait = min(1.0, self._minute_waited_s / self._minute_trained_s)
        figures = {"samples_per_second": round(rate, 3), "data_wait_fraction": round(wait, 4), **device_figures()}
        self._rates, self._minute_waited_s, self._minute_trained_s = [], 0.0, 0.0
        self._log({"at": round(time.time(), 1), **figures})
        self._write(f"autotune: {minute_words(figures, self._asked)}\n")

    def _tell_drift(self, change: float, rate: float) -> None:
        self._log({"at": round(time.time(), 1), "drift": round(change, 4), "samples_per_second": round(rate, 3)})
        self._write(
            f"autotune: the rate has fallen by {-change:.0%} and stays there. If nothing else uses this machine, "
            "search again: autotune search\n"
        )

    def _log(self, values: dict[str, Any]) -> None:
        with suppress(OSError), Path(self._asked.log).open("a", encoding="utf-8") as log:
            log.write(json.dumps(values) + "\n")


def device_figures() -> dict[str, Any]:
    """Utilization and memory of the device now; empty on a CPU, and without figures."""
    if not torch_names.is_cuda_on():
        return {}
    figures: dict[str, Any] = {"memory_bytes": torch.cuda.memory_reserved()}
    with suppress(Exception):  # The figure is a comfort: no failure of the driver's library may end the training.
        figures["device_utilization"] = torch.cuda.utilization() / 100
    return figures


def minute_words(figures: dict[str, Any], asked: RunWatch) -> str:
    """The figures of a minute for people."""
    rate = figures["samples_per_second"]
    parts = [f"{format_rate(rate)} {asked.samples_unit} per second"]
    if asked.samples_per_second:
        parts[0] += f", {rate / asked.samples_per_second:.0%} of the tuned {format_rate(asked.samples_per_second)}"
    if "device_utilization" in figures:
        parts.append(f"GPU {figures['device_utilization']:.0%} busy")
    parts.append(f"{figures['data_wait_fraction']:.0%} of the time waits for data")
    if "memory_bytes" in figures:
        parts.append(f"{format_bytes(figures['memory_bytes'])} reserved")
    return "; ".join(parts)
