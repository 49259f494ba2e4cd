"""What a window cannot know of waits that are rare: where loader and step are nearly in balance.

A queue that is hardly ever empty makes the step wait now and then. A window sees few of these waits or none, and then
takes both their share of the time and its error for too small at once: simulated 95 % intervals covered the truth in 65
to 90 % of the windows, and nearly all that did not had seen no wait at all. So a few waits more are allowed for than
were seen, and as many as the workers' own build times say are to come.

A queue that filled in some pause before the window hides for a long time that the loader is slower than the step: 16
batches last for 160 steps where it is a tenth slower. The build times tell that as well.
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
"""Waits that may have been missed, of the size of those that were seen: about the square of the normal distribution's
95 % quantile, which the score interval of a count adds to it."""

SHARED_WAIT = 0.5
"""Of the waits that the workers would cause one by one, those that are left: while the step waits for one of them, all
others get ahead. Simulated for 1 to 16 workers, prefetch factors of 2 to 4, sigmas of 0.1 to 0.5 and loaders up to 40 %
faster than the step: where waits take up to a twentieth of the time, 0.3 to 1.1."""

LEAST_AHEAD = 0.25
"""Batches that a worker gets ahead whose prefetch factor is 1: it begins a new one when the last one is taken, which is
before the step is done with that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedWaits:
    """Waits that a loader causes in the long run, by how long its workers take for their batches."""

    share: float
    """Of the time, 0 to 1, beyond `steady_share`."""
    bout_s: float
    """Mean time waited in one bout, from an empty queue until it has recovered; a bout may be several waits."""
    steady_share: float = 0.0
    """Of the time, 0 to 1, that has to be waited since the loader is slower than the step."""
    pace_error: float = 0.0
    """Standard error of the workers' mean build time, relative to it."""


def rare_wait_error(blocks: Sequence[Block]) -> float:
    """Standard error of the rate, relative to it, that waits cause which this window may have missed.

    0 where every block waits for the same share of its time, or none does and the workers are far from being late:
    what comes in every block is not rare. It fades out where the loader binds and waits are the rule. Where nobody saw
    the workers, nothing is known of waits of which none came.

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
    # Bouts of exponential length that come at random: the variance of their sum is twice its mean, times their mean.
    of_expected = math.sqrt(2.0 * expected.share * expected.bout_s / window_s)
    of_seen = math.sqrt(MISSED_WAITS) * _typical_wait_s(blocks) / window_s
    # What is hidden is no chance: all of it is to be within an interval of about two standard errors, and as far as the
    # build times that tell of it are by chance what they are, its own error as well.
    hidden = max(0.0, expected.steady_share - data_wait_fraction(blocks))
    of_hidden = math.hypot(hidden / 2.0, min(hidden, expected.pace_error))
    return math.sqrt(rarity) * max(of_seen, of_expected, of_hidden)


def expected_waits(blocks: Sequence[Block]) -> ExpectedWaits:
    """The rare waits that are to come, whether these blocks saw any or not; none where nobody saw the workers.

    A worker's lead over the step is taken for a Brownian motion between two walls (Harrison, Brownian Motion and
    Stochastic Flow Systems, 1985): nothing, where the step waits, and the batches that it may have ready, where it
    stops. In the time in which the step uses up one batch of each worker it gains what it builds less one (its drift),
    with the relative variance of its build times. A loader that is slower than the step makes it wait for that all the
    time; beyond it, waits are as rare as stops are for one that is as much faster.

    The step's own variation, which is small beside that of a loader, is not in it.
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
    lost_s = SHARED_WAIT * built.num_workers * _pushed_back(drift, variance, ahead) * built.mean_s
    # Simulated: right to a fifth. Without drift a third of the walls' distance, with much of it what the drift takes
    # to prevail.
    bout = 1.0 / (3.0 / ahead + 2.0 * drift / variance)
    return ExpectedWaits(
        share=lost_s / (lost_s + cycle_s),
        bout_s=bout * built.mean_s,
        steady_share=max(0.0, 1.0 - cycle_s / built.mean_s),
        pace_error=math.sqrt(variance / built.num_finished),
    )


def _typical_wait_s(blocks: Sequence[Block]) -> float:
    """The wait that a moment of waiting falls into, beyond what every block waits for; 0 where there is none."""
    usual = min(block.data_wait_s / block.duration_s for block in blocks)
    waits_s = [max(0.0, block.data_wait_s - usual * block.duration_s) for block in blocks]
    waited_s = sum(waits_s)
    return sum(wait_s * wait_s for wait_s in waits_s) / waited_s if waited_s > 0 else 0.0


def _pushed_back(drift: float, variance: float, ahead: float) -> float:
    """Rate at which a Brownian motion between 0 and `ahead`, with a drift >= 0, is pushed back at 0."""
    exponent = 2 * drift * ahead / variance
    if exponent < 1e-6:
        return variance / (2 * ahead)
    return drift / math.expm1(exponent) if exponent < 700 else 0.0
