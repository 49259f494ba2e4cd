"""The unit of measurement: a block of micro-batches, and the ratio estimators over many of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_NUM_LIST_FIELDS = 8


class Phase(StrEnum):
    """Part of the trial in which a block was measured."""

    WARMUP = "warmup"
    """Compute on one cached batch until the step time is steady."""
    COMPUTE = "compute"
    """Steady compute on the cached batch: the compute-only rate, or ceiling."""
    RAMP = "ramp"
    """The first real batches after the loader was let go; never part of an estimate."""
    WINDOW = "window"
    """The measured part: real batches in steady state."""
    RESTART = "restart"
    """After the window: from asking the loader for a new epoch until its workers are in stride again. Never part of the
    rate; it tells what an epoch's start costs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A run of consecutive micro-batches with the time they took; impossible values raise `ValueError`."""

    phase: Phase
    num_steps: int
    """Optimizer steps in the block, at least 1, the skipped ones included."""
    num_micro_batches: int
    """Micro-batches (forward-backward passes) in the block, at least 1."""
    num_samples: float
    """Samples that went through these micro-batches, > 0. Samples of skipped steps are in it, so a window with skipped
    steps is to be judged by `num_skipped_steps` and not by its rate."""
    duration_s: float
    """Time from the end of the block before to the end of this one, > 0; waiting for data is in it."""
    data_wait_s: float
    """Time inside the loader's `next()`, >= 0. May exceed `duration_s` by a little where the two come from different
    clocks (device events and the host's clock)."""
    num_skipped_steps: int = 0
    """Optimizer steps that the gradient scaler skipped, 0 to `num_steps`."""
    num_built: float | None = None
    """Micro-batches that the loader's workers built in this time, delivered or not, those they are at counted in part;
    may be a little below 0, since such a part is an estimate. None where nobody saw the workers."""

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_micro_batches", "num_samples", "duration_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} of a block must be finite and positive, not {value!r}")
        if not (math.isfinite(self.data_wait_s) and self.data_wait_s >= 0):
            raise ValueError(f"data_wait_s of a block must be finite and not negative, not {self.data_wait_s!r}")
        if self.num_built is not None and not math.isfinite(self.num_built):
            raise ValueError(f"num_built of a block must be finite, not {self.num_built!r}")
        if not 0 <= self.num_skipped_steps <= self.num_steps:
            raise ValueError(f"num_skipped_steps must be 0 to {self.num_steps}, not {self.num_skipped_steps!r}")

    def to_list(self) -> list[str | int | float | None]:
        """The block as a list of 8 JSON values, in the order of the fields; `from_list` reads it back."""
        return [
            self.phase.value,
            self.num_steps,
            self.num_micro_batches,
            self.num_samples,
            self.duration_s,
            self.data_wait_s,
            self.num_skipped_steps,
            self.num_built,
        ]

    @classmethod
    def from_list(cls, data: object) -> "Block":
        """The block that `to_list` wrote.

        Args:
            data: What a JSON reader gave, of any type: it may come from a damaged file.

        Raises:
            ValueError: When it is not a list of 8 with the right types, or the values are impossible.
        """
        if not isinstance(data, list) or len(data) != _NUM_LIST_FIELDS:
            raise ValueError(f"a block must be a list of {_NUM_LIST_FIELDS}, not {data!r}")
        phase, num_steps, num_micro_batches, num_samples, duration_s, data_wait_s, num_skipped_steps, num_built = data
        if not isinstance(phase, str):
            raise ValueError(f"phase of a block must be a string, not {phase!r}")
        return cls(
            phase=Phase(phase),
            num_steps=_read_int("num_steps", num_steps),
            num_micro_batches=_read_int("num_micro_batches", num_micro_batches),
            num_samples=_read_float("num_samples", num_samples),
            duration_s=_read_float("duration_s", duration_s),
            data_wait_s=_read_float("data_wait_s", data_wait_s),
            num_skipped_steps=_read_int("num_skipped_steps", num_skipped_steps),
            num_built=None if num_built is None else _read_float("num_built", num_built),
        )


def merge(blocks: Sequence[Block], factor: int) -> tuple[Block, ...]:
    """Every `factor` adjacent blocks as one; a trailing group with fewer is dropped.

    Args:
        blocks: Consecutive blocks, in the order of time.
        factor: Blocks per merged block, at least 1.

    Raises:
        ValueError: When `factor` is below 1, or a group would mix phases.
    """
    if factor < 1:
        raise ValueError(f"factor must be at least 1, not {factor!r}")
    num_groups = len(blocks) // factor
    return tuple(_merge_group(blocks[i * factor : (i + 1) * factor]) for i in range(num_groups))


def rate_samples_per_second(blocks: Sequence[Block]) -> float:
    """Samples per second over all blocks together, as they were delivered: total samples over total time.

    Neither the mean of the blocks' rates nor their median: the first is too high whenever durations vary, the second
    forgets the waits of a loader whose steps come in bursts.

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
    return min(fraction, 1.0)  # two clocks may disagree by a little; a share above 1 would mean nothing


def _merge_group(group: Sequence[Block]) -> Block:
    phases = {block.phase for block in group}
    if len(phases) > 1:
        raise ValueError(f"blocks of different phases cannot be merged: {', '.join(sorted(phases))}")
    num_built = [block.num_built for block in group if block.num_built is not None]
    return Block(
        phase=group[0].phase,
        num_steps=sum(block.num_steps for block in group),
        num_micro_batches=sum(block.num_micro_batches for block in group),
        num_samples=sum(block.num_samples for block in group),
        duration_s=sum(block.duration_s for block in group),
        data_wait_s=sum(block.data_wait_s for block in group),
        num_skipped_steps=sum(block.num_skipped_steps for block in group),
        num_built=sum(num_built) if len(num_built) == len(group) else None,
    )


def _read_int(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} of a block must be an integer, not {value!r}")
    return value


def _read_float(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} of a block must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} of a block is too large for a number") from None
