"""The error of a window by rare waits, for a loader and a step nearly in balance.

When the queue is hardly ever empty, the step waits only now and then. A window sees few rare waits or none, and
underestimates the waiting time and the error. Simulated 95 % intervals covered the truth in 65 to 90 % of the windows,
and nearly all windows that missed the truth had seen no wait at all. The error therefore allows for a few more waits
than were seen, and for the waits predicted by the workers' build times.

A queue that filled during a pause before the window hides a loader slower than the step for a long time: with a loader
slower by a tenth, 16 batches last for 160 steps. The build times reveal the slow loader too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from autotune.measure.block import Block, data_wait_fraction
from autotune.measure.build_rate import binding_share
from autotune.measure.build_times import BuildTimes

MISSED_WAITS = 4.0
"""Waits of typical size that the window may have missed: about the square of the normal distribution's 95 % quantile,
as added by the score interval of a count."""

SHARED_WAIT = 0.5
"""Share of waits left when several workers share the delays: while the step waits for a worker, the rest get ahead.
Simulated for 1 to 16 workers, prefetch factors of 2 to 4, sigmas of 0.1 to 0.5 and loaders up to 40 % faster than the
step: 0.3 to 1.1 when waits take up to a twentieth of the time."""

LEAST_AHEAD = 0.25
"""Batches that a worker with a prefetch factor of 1 gets ahead: the worker begins a new batch when the step takes the
last, before the step has finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedWaits:
    """Waits for a loader in the long run, predicted from the workers' build times."""

    share: float
    """Share of the time, 0 to 1, in addition to `steady_share`."""
    bout_s: float
    """Mean waiting time of a bout, from an empty queue to a recovered queue; a bout may be several waits."""
    steady_share: float = 0.0
    """Share of the time, 0 to 1, waited because the loader is slower than the step."""
    pace_error: float = 0.0
    """Standard error of the workers' mean build time, relative to that mean."""


def rare_wait_error(blocks: Sequence[Block]) -> float:
    """Standard error of the rate, relative to the rate, from waits that this window may have missed.

    0 when every block waits for the same share of its time, because such waits are not rare; 0 also when no block waits
    and the workers are far from being late. The error fades out as the loader binds and waits become the rule. Without
    observed workers, a window without waits has an error of 0.

    Args:
        blocks: Consecutive blocks of one phase, at least 1.

    Raises:
        ValueError: When there is no block.
    """
    rarity = 1.0 - binding_share(blocks)
    if rarity <= 0:
        return 0.0
    window_s = sum(block.duration_s for block in blocks)
    expected = expected_waits(blocks)
    # Bouts of exponential length at random times: the variance of the sum is twice the sum's mean, times a bout's mean.
    of_expected = math.sqrt(2.0 * expected.share * expected.bout_s / window_s)
    of_seen = math.sqrt(MISSED_WAITS) * _typical_wait_s(blocks) / window_s
    # A hidden wait is no chance: an interval of about two standard errors must include all of it. The error of the
    # build times that reveal it counts too.
    hidden = max(0.0, expected.steady_share - data_wait_fraction(blocks))
    of_hidden = math.hypot(hidden / 2.0, min(hidden, expected.pace_error))
    return math.sqrt(rarity) * max(of_seen, of_expected, of_hidden)


def expected_waits(blocks: Sequence[Block]) -> ExpectedWaits:
    """The rare waits to expect, whether these blocks saw any or not; none without observed workers.

    The model takes a worker's lead over the step as a Brownian motion between two walls (Harrison, Brownian Motion and
    Stochastic Flow Systems, 1985). At the lower wall the lead is 0 and the step waits; at the upper wall the worker has
    all its batches ready and stops. While the step uses up one batch of each worker, the lead grows by the number of
    batches the worker builds minus 1 (the drift), with the relative variance of the build times. A loader slower than
    the step makes the step wait all the time (`steady_share`). Its additional waits are as rare as the stops of a
    loader faster by the same drift.

    The step's own variation is not in the model; it is small beside a loader's.
    """
    times = [block.build_times for block in blocks if block.build_times is not None]
    built = reduce(BuildTimes.plus, times) if times and len(times) == len(blocks) else None
    if built is None or built.relative_variance == 0:
        return ExpectedWaits(share=0.0, bout_s=0.0)
    variance = built.relative_variance
    ahead = max(float(built.prefetch_factor - 1), LEAST_AHEAD)
    busy_s = sum(max(0.0, block.duration_s - block.data_wait_s) for block in blocks)
    cycle_s = built.num_workers * busy_s / sum(block.num_micro_batches for block in blocks)
    drift = abs(cycle_s / built.mean_s - 1.0)
    lost_s = SHARED_WAIT * built.num_workers * _reflection_rate(drift, variance, ahead) * built.mean_s
    # Simulated: right to a fifth. Without drift, a third of the walls' distance; with much drift, the time for it to
    # prevail.
    bout = 1.0 / (3.0 / ahead + 2.0 * drift / variance)
    return ExpectedWaits(
        share=lost_s / (lost_s + cycle_s),
        bout_s=bout * built.mean_s,
        steady_share=max(0.0, 1.0 - cycle_s / built.mean_s),
        pace_error=math.sqrt(variance / built.num_finished),
    )


def _typical_wait_s(blocks: Sequence[Block]) -> float:
    """The wait that a random moment of waiting belongs to, beyond the share common to all blocks; 0 without waits."""
    usual = min(block.data_wait_s / block.duration_s for block in blocks)
    waits_s = [max(0.0, block.data_wait_s - usual * block.duration_s) for block in blocks]
    waited_s = sum(waits_s)
    return sum(wait_s * wait_s for wait_s in waits_s) / waited_s if waited_s > 0 else 0.0


def _reflection_rate(drift: float, variance: float, ahead: float) -> float:
    """Rate at which a Brownian motion between 0 and `ahead`, with a drift >= 0, is pushed back at 0."""
    exponent = 2 * drift * ahead / variance
    if exponent < 1e-6:
        return variance / (2 * ahead)
    return drift / math.expm1(exponent) if exponent < 700 else 0.0
