"""How often a trial's interval holds the truth, on a simulated loader: bias, coverage and steps, in Markdown.

    python -m tests.benchmarks.measure.coverage [--rule screening|finals] [--windows 100] [--sigmas 0.1 0.3]

A cell is a number of workers, a prefetch factor, the sigma of the lognormal build times, and the compute time's share
of the loader's period of 20 ms. Windows begin after one round of ramp and end by the rule of a trial; a minute or two.
"""

from __future__ import annotations

import argparse
import random
import statistics
from itertools import product
from typing import Any

from autotune.measure.block import Block
from autotune.measure.interval import estimate_rate
from autotune.measure.window_stopping import (
    FINALS_HALF_WIDTH_RATIO,
    SCREENING_HALF_WIDTH_RATIO,
    StopReason,
    WindowRule,
    block_size,
    decide,
)
from tests.unit.measure.simulated import loader_blocks, loader_run

PERIOD_S = 0.02
SIZES = ((2, 2), (4, 2), (8, 2), (8, 4))
LOADS = (0.1, 0.5, 0.9, 1.0, 1.1, 1.2, 1.3)
RULES = {
    "screening": WindowRule(half_width_ratio=SCREENING_HALF_WIDTH_RATIO),
    "finals": WindowRule(half_width_ratio=FINALS_HALF_WIDTH_RATIO, min_window_s=3.0, max_window_s=12.0),
}
NUM_TRUTH_STEPS = 100_000


def window_of(blocks: list[Block], rule: WindowRule) -> tuple[list[Block], bool]:
    """The blocks up to where the rule ends the window, and whether it is as narrow as the rule asks."""
    for num in range(1, len(blocks) + 1):
        reason = decide(blocks[:num], rule, None)
        if reason is not None:
            return blocks[:num], reason is StopReason.CONVERGED
    return blocks, False


def row(rule: WindowRule, size: tuple[int, int], sigma: float, load: float, num_windows: int) -> str:
    """A cell of the table."""
    num_workers, prefetch_factor = size
    loader: dict[str, Any] = {
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor,
        "batch_s": PERIOD_S * num_workers,
        "sigma": sigma,
        "compute_s": PERIOD_S * load,
        "compute_sigma": 0.02,
    }
    truth = NUM_TRUTH_STEPS / loader_run(random.Random(0), NUM_TRUTH_STEPS, **loader).done_s[-1]
    # The block's length follows from the ramp: of so many batches in the time that a worker takes for one.
    steps_per_block = block_size(num_workers, 1, PERIOD_S * (1 + load / num_workers), rule.min_block_s)
    num_blocks = 1 + round(1.15 * rule.max_window_s / (PERIOD_S * max(1.0, load)) / steps_per_block)
    rng = random.Random(1)
    found = []
    for _ in range(num_windows):
        blocks = loader_blocks(
            rng, num_blocks, steps_per_block=steps_per_block, num_ramp_steps=num_workers, sees_workers=True, **loader
        )
        window, is_converged = window_of(blocks, rule)
        found.append((estimate_rate(window), len(window) * steps_per_block, is_converged))
    errors = [estimate.samples_per_second / truth - 1 for estimate, _, _ in found]
    covered = sum(estimate.interval.low <= truth <= estimate.interval.high for estimate, _, _ in found)
    return (
        f"| {num_workers} x {prefetch_factor} | {sigma} | {load} | {covered / num_windows:.2f} "
        f"| {statistics.fmean(errors):+.1%} | {statistics.stdev(errors):.1%} "
        f"| {statistics.median(estimate.half_width_ratio for estimate, _, _ in found):.1%} "
        f"| {statistics.fmean(steps for _, steps, _ in found):.0f} "
        f"| {sum(is_converged for _, _, is_converged in found) / num_windows:.0%} |"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.measure.coverage", description=__doc__)
    parser.add_argument("--rule", choices=RULES, default="screening")
    parser.add_argument("--windows", type=int, default=100, help="per cell")
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.1, 0.3])
    options = parser.parse_args()
    print("| workers x prefetch | sigma | load | holds | bias | deviation | half-width | steps | converged |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size, sigma, load in product(SIZES, options.sigmas, LOADS):
        print(row(RULES[options.rule], size, sigma, load, options.windows), flush=True)


if __name__ == "__main__":
    main()
