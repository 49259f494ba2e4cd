"""Blocks for the tests: plain ones, and those of a simulated DataLoader queue."""

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from autotune.measure.block import Block, Phase
from autotune.measure.build_times import BuildTimes


def make_build_times(*times_s, num_workers=2, prefetch_factor=2):
    return BuildTimes(
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
        num_finished=len(times_s),
        total_s=math.fsum(times_s),
        total_squared_s2=math.fsum(time_s * time_s for time_s in times_s),
    )


def make_block(
    duration_s=0.1, num_samples=32.0, *, phase=Phase.WINDOW, data_wait_s=0.0, num_built=None, build_times=None
):
    return Block(
        phase=phase,
        num_steps=1,
        num_micro_batches=1,
        num_samples=num_samples,
        duration_s=duration_s,
        data_wait_s=data_wait_s,
        num_built=num_built,
        build_times=build_times,
    )


def make_blocks(durations_s: Iterable[float]) -> list[Block]:
    return [make_block(duration_s) for duration_s in durations_s]


@dataclass
class LoaderRun:
    """When each batch was begun and ready, taken, and used."""

    began_s: list[float] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)
    taken_s: list[float] = field(default_factory=list)
    done_s: list[float] = field(default_factory=list)

    def num_built(self, now_s):
        """Batches built until then, with the share of those being built: as a trial's own log counts them."""
        finished = [i for i, ready_s in enumerate(self.ready_s) if ready_s <= now_s]
        if not finished:
            return 0.0
        mean_s = sum(self.ready_s[i] - self.began_s[i] for i in finished) / len(finished)
        times_s = zip(self.began_s, self.ready_s, strict=True)
        spent_s = [now_s - began_s for began_s, ready_s in times_s if began_s <= now_s < ready_s]
        return len(finished) + sum(min(1.0, each_s / mean_s) for each_s in spent_s)

    def build_times(self, after_s, until_s, *, num_workers, prefetch_factor):
        """Of the batches that were finished between the two."""
        times_s = [
            ready_s - began_s
            for began_s, ready_s in zip(self.began_s, self.ready_s, strict=True)
            if after_s < ready_s <= until_s
        ]
        return make_build_times(*times_s, num_workers=num_workers, prefetch_factor=prefetch_factor)


def loader_run(
    rng: random.Random,
    num_steps,
    *,
    num_workers,
    prefetch_factor,
    batch_s,
    sigma,
    compute_s,
    compute_sigma=0.0,
    pause_s=0.0,
):
    """A training loop behind an in-order multi-process loader, from an empty queue on.

    Worker `i % num_workers` builds batch `i`; it may begin when it is done with its last one and batch
    `i - num_workers * prefetch_factor` has been taken. Build times are lognormal with mean `batch_s`; compute times are
    normal with the relative deviation `compute_sigma`; the first one takes `pause_s` longer, and the queue fills.
    """
    run = LoaderRun()
    now_s = 0.0
    for i in range(num_steps):
        idle_since_s = run.ready_s[i - num_workers] if i >= num_workers else 0.0
        depth = num_workers * prefetch_factor
        issued_s = run.taken_s[i - depth] if i >= depth else 0.0
        run.began_s.append(max(idle_since_s, issued_s))
        run.ready_s.append(run.began_s[i] + batch_s * math.exp(rng.gauss(-sigma * sigma / 2, sigma)))
        run.taken_s.append(max(now_s, run.ready_s[i]))
        now_s = run.taken_s[i] + compute_s * (1 + rng.gauss(0, compute_sigma)) + (0.0 if i else pause_s)
        run.done_s.append(now_s)
    return run


def loader_blocks(rng: random.Random, num_blocks, *, steps_per_block, num_ramp_steps=32, sees_workers=False, **loader):
    """Blocks of a simulated loader after its ramp, with 1 sample per step; on request with what the workers built."""
    num_steps = num_ramp_steps + num_blocks * steps_per_block
    # What workers build ahead after the last step is not asked for: all of it is begun, if late, within two queues.
    num_ahead = 2 * loader["num_workers"] * loader["prefetch_factor"] if sees_workers else 0
    run = loader_run(rng, num_steps + num_ahead, **loader)
    workers = {name: loader[name] for name in ("num_workers", "prefetch_factor")}
    blocks = []
    for end in range(num_ramp_steps + steps_per_block, num_steps + 1, steps_per_block):
        first, began_s, ended_s = end - steps_per_block, run.done_s[end - steps_per_block - 1], run.done_s[end - 1]
        blocks.append(
            Block(
                phase=Phase.WINDOW,
                num_steps=steps_per_block,
                num_micro_batches=steps_per_block,
                num_samples=steps_per_block,
                duration_s=ended_s - began_s,
                data_wait_s=sum(max(0.0, run.taken_s[i] - run.done_s[i - 1]) for i in range(first, end)),
                num_built=run.num_built(ended_s) - run.num_built(began_s) if sees_workers else None,
                build_times=run.build_times(began_s, ended_s, **workers) if sees_workers else None,
            )
        )
    return blocks
