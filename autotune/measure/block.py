"""The unit of measurement: a block of micro-batches, and the ratio estimators over many of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from autotune.measure.build_times import BuildTimes


class Phase(StrEnum):
    """Part of the trial in which a block was measured."""

    WARMUP = "warmup"
    """Compute on one cached batch until the step time is steady."""
    COMPUTE = "compute"
    """Steady compute on the cached batch: the compute-only rate, or ceiling."""
    RAMP = "ramp"
    """The first real batches after the gate opens; never part of an estimate."""
    WINDOW = "window"
    """The measured part: real batches in steady state."""
    RESTART = "restart"
    """After the window: from the request for a new epoch until the workers are in stride. Never part of the rate; it
    shows the cost of starting an epoch."""
    OBSERVED = "observed"
    """After all other phases, in a diagnosis: the script goes on, with observers. Never part of an estimate."""


LEAST_BUSY_S = 1e-9
"""Least busy time of a block: rates are divided by busy times, and a divisor of 0 is an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A run of consecutive micro-batches and the time they took; impossible values raise `ValueError`."""

    phase: Phase
    num_steps: int
    """Optimizer steps in the block, at least 1, including skipped steps."""
    num_micro_batches: int
    """Micro-batches (forward-backward passes) in the block, at least 1."""
    num_samples: float
    """Samples in these micro-batches, > 0. Samples of skipped steps count too, so judge a window with skipped steps by
    `num_skipped_steps` and not by its rate."""
    duration_s: float
    """Time from the end of the previous block to the end of this block, > 0, including waits for data."""
    data_wait_s: float
    """Time inside the loader's `next()`, >= 0. May slightly exceed `duration_s` when the two come from different clocks
    (device events and the host's clock)."""
    num_skipped_steps: int = 0
    """Optimizer steps that the gradient scaler skipped, 0 to `num_steps`."""
    num_built: float | None = None
    """Micro-batches built by the loader's workers during the block, delivered or not. Unfinished batches count in part;
    since the part is an estimate, the number may be slightly below 0. None without observed workers."""
    build_times: BuildTimes | None = None
    """Build times of the batches finished by the loader's workers during the block; None without observed workers."""
    num_saves: int = 0
    """Calls of torch.save in the block, as for a checkpoint, >= 0."""

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_micro_batches", "num_samples", "duration_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} of a block must be finite and positive, not {value!r}")
        if not (math.isfinite(self.data_wait_s) and self.data_wait_s >= 0):
            raise ValueError(f"data_wait_s of a block must be finite and not negative, not {self.data_wait_s!r}")
        if self.num_built is not None and not math.isfinite(self.num_built):
            raise ValueError(f"num_built of a block must be finite, not {self.num_built!r}")
        if self.num_saves < 0:
            raise ValueError(f"num_saves of a block must not be negative, not {self.num_saves!r}")
        if not 0 <= self.num_skipped_steps <= self.num_steps:
            raise ValueError(f"num_skipped_steps must be 0 to {self.num_steps}, not {self.num_skipped_steps!r}")

    @property
    def busy_s(self) -> float:
        """Time outside the loader's `next()`, > 0. For a cached batch the steps alone: copying is no training."""
        return max(self.duration_s - self.data_wait_s, LEAST_BUSY_S)


def merge(blocks: Sequence[Block], factor: int) -> tuple[Block, ...]:
    """Merge every `factor` adjacent blocks into one; a trailing group with fewer blocks is dropped."""
    if factor < 1:
        raise ValueError(f"factor must be at least 1, not {factor!r}")
    num_groups = len(blocks) // factor
    return tuple(_merge_group(blocks[i * factor : (i + 1) * factor]) for i in range(num_groups))


def rate_samples_per_second(blocks: Sequence[Block]) -> float:
    """Samples per second over all blocks together, as delivered: total samples over total time.

    The mean of the blocks' rates would be too high whenever durations vary, and the median would forget the waits of a
    loader that delivers in bursts.

    Raises:
        ValueError: When there is no block.
    """
    if not blocks:
        raise ValueError("a rate needs at least 1 block")
    return sum(block.num_samples for block in blocks) / sum(block.duration_s for block in blocks)


def data_wait_fraction(blocks: Sequence[Block]) -> float:
    """Share of the time spent waiting for data, 0 to 1: total data wait over total time.

    Raises:
        ValueError: When there is no block.
    """
    if not blocks:
        raise ValueError("a data wait fraction needs at least 1 block")
    fraction = sum(block.data_wait_s for block in blocks) / sum(block.duration_s for block in blocks)
    return min(fraction, 1.0)  # two clocks may disagree slightly; a share above 1 means nothing


def _merge_group(group: Sequence[Block]) -> Block:
    phases = {block.phase for block in group}
    if len(phases) > 1:
        raise ValueError(f"blocks of different phases cannot be merged: {', '.join(sorted(phases))}")
    num_built = [block.num_built for block in group if block.num_built is not None]
    build_times = [block.build_times for block in group if block.build_times is not None]
    return Block(
        phase=group[0].phase,
        num_steps=sum(block.num_steps for block in group),
        num_micro_batches=sum(block.num_micro_batches for block in group),
        num_samples=sum(block.num_samples for block in group),
        duration_s=sum(block.duration_s for block in group),
        data_wait_s=sum(block.data_wait_s for block in group),
        num_skipped_steps=sum(block.num_skipped_steps for block in group),
        num_built=sum(num_built) if len(num_built) == len(group) else None,
        build_times=reduce(BuildTimes.plus, build_times) if len(build_times) == len(group) else None,
        num_saves=sum(block.num_saves for block in group),
    )
