"""Marks the end of every block on the device's clock while the host runs ahead, and says what came of it."""

import json
import statistics
import time

import torch

from autotune.measure.block import Phase
from autotune.trial.meter.block_recorder import Recorder
from autotune.trial.torch.device_clock import CudaClock

NUM_STEPS, STEPS_PER_BLOCK = 4000, 20

matrix = torch.randn(2048, 2048, device="cuda")
for _ in range(50):
    matrix = torch.nn.functional.normalize(matrix @ matrix)
clock = CudaClock()
events = []
new_event = clock._new_event
clock._new_event = lambda **options: events.append(new_event(**options)) or events[-1]
recorder = Recorder(clock)
recorder.begin(Phase.WINDOW)
began, costs_s = time.perf_counter(), []
for number in range(1, NUM_STEPS + 1):
    matrix = torch.nn.functional.normalize(matrix @ matrix)
    recorder.count.num_steps += 1
    recorder.count.num_samples += 1.0
    if number % STEPS_PER_BLOCK == 0:
        before = time.perf_counter()
        recorder.end_block()
        costs_s.append(time.perf_counter() - before)
blocks = recorder.finish()
wall_s = time.perf_counter() - began
said = {
    "num_events": len(events),
    "num_blocks": len(blocks),
    "by_events_s": sum(block.duration_s for block in blocks),
    "wall_s": wall_s,
    "median_cost_us": 1e6 * statistics.median(costs_s),
    "mean_cost_us": 1e6 * statistics.fmean(costs_s),
}
print(json.dumps(said))
