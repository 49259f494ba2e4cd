"""Blocks for the tests: plain ones, and those of a simulated DataLoader queue."""

import math
import random
from collections.abc import Iterable

from autotune.measure.block import Block, Phase


def make_block(duration_s=0.1, num_samples=32.0, *, phase=Phase.WINDOW, data_wait_s=0.0):
    return Block(
        phase=phase,
        num_steps=1,
        num_micro_batches=1,
        num_samples=num_samples,
        duration_s=duration_s,
        data_wait_s=data_wait_s,
    )


def make_blocks(durations_s: Iterable[float]) -> list[Block]:
    return [make_block(duration_s) for duration_s in durations_s]


def loader_step_times_s(
    rng: random.Random, num_steps, *, num_workers, prefetch_factor, batch_s, sigma, compute_s, compute_sigma=0.0
):
    """Step times of a training loop behind an in-order multi-process loader, from an empty queue on.

    Worker `i % num_workers` builds batch `i`; it may begin when it is done with its last one and batch
    `i - num_workers * prefetch_factor` has been taken. Build times are lognormal with mean `batch_s`; compute times are
    normal with the relative deviation `compute_sigma`.
    """
    ready_s, taken_s, step_times_s = [], [], []
    now_s = 0.0
    for i in range(num_steps):
        idle_since_s = ready_s[i - num_workers] if i >= num_workers else 0.0
        depth = num_workers * prefetch_factor
        issued_s = taken_s[i - depth] if i >= depth else 0.0
        ready_s.append(max(idle_since_s, issued_s) + batch_s * math.exp(rng.gauss(-sigma * sigma / 2, sigma)))
        taken_s.append(max(now_s, ready_s[i]))
        done_s = taken_s[i] + compute_s * (1 + rng.gauss(0, compute_sigma))
        step_times_s.append(done_s - now_s)
        now_s = done_s
    return step_times_s


def loader_blocks(rng: random.Random, num_blocks, *, steps_per_block, num_ramp_steps=32, **loader):
    """Blocks of a simulated loader in steady state, with 1 sample per step."""
    step_times_s = loader_step_times_s(rng, num_ramp_steps + num_blocks * steps_per_block, **loader)[num_ramp_steps:]
    return [
        make_block(sum(step_times_s[i * steps_per_block : (i + 1) * steps_per_block]), steps_per_block)
        for i in range(num_blocks)
    ]
