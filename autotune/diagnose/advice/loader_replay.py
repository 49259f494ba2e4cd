"""Replays measured sample times through torch's loader, with and without the order of batches. Pure."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence

NUM_BATCHES = 2000
"""Replayed batches: a batch slowed by one sample in a hundred comes often enough for a mean within some percent."""


def replayed_step_s(
    times_s: Sequence[float],
    batch_size: int,
    train_s: float,
    workers: int,
    prefetch: int,
    *,
    in_order: bool,
    weights: Sequence[float] | None = None,
) -> float:
    """Seconds between two batches, for training that takes `train_s` per batch.

    torch hands `prefetch` batches to each worker at the start, and one more for every batch taken. In order, the next
    worker in turn gets the batch, and training takes batches in order. Out of order, the worker with the fewest batches
    gets the batch, and training takes any finished batch.

    Args:
        times_s: Times of single samples, drawn at random for every batch.
        batch_size: Samples of a batch.
        train_s: Seconds of training on a batch.
        workers: Number of workers, at least 1.
        prefetch: Batches ahead per worker, at least 1.
        in_order: Whether batches are taken in order.
        weights: Likelihood of each time, in any unit; None for equal ones.
    """
    draw = random.Random(0)
    build_s = [sum(draw.choices(times_s, weights, k=batch_size)) for _ in range(NUM_BATCHES)]
    free_at = [0.0] * workers
    outstanding = [0] * workers
    finished: list[tuple[float, int, int]] = []
    """Heap of (time, batch, worker) in the order in which training takes batches."""
    waiting: deque[tuple[float, int, int]] = deque()
    now, handed, turn = 0.0, 0, 0

    def hand(at: float) -> None:
        nonlocal handed, turn
        if handed == NUM_BATCHES:
            return
        if in_order:
            worker = turn % workers
        else:
            worker = min(range(workers), key=lambda n: (outstanding[n], (n - turn) % workers))
        turn += 1
        end = max(free_at[worker], at) + build_s[handed]
        free_at[worker], outstanding[worker] = end, outstanding[worker] + 1
        entry = (end, handed, worker)
        waiting.append(entry) if in_order else heapq.heappush(finished, entry)
        handed += 1

    for _ in range(workers * prefetch):
        hand(0.0)
    for _ in range(NUM_BATCHES):
        end, _, worker = waiting.popleft() if in_order else heapq.heappop(finished)
        outstanding[worker] -= 1
        now = max(now, end)
        hand(now)
        now += train_s
    return now / NUM_BATCHES
